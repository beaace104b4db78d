"""Matching: moving publications meet moving subscriptions. A core: arrays in, events out."""

from __future__ import annotations

from mercury.matching.engine import Engine, MatchingRules, NearbyPublication, warm_up
from mercury.matching.events import Events

__all__ = ["Engine", "Events", "MatchingRules", "NearbyPublication", "warm_up"]
