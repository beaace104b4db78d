"""Matching: moving publications meet moving subscriptions. A core: arrays in, events out."""

from __future__ import annotations

from mercury.matching.engine import Engine, Found, MatchingRules, warm_up
from mercury.matching.events import Events

__all__ = ["Engine", "Events", "Found", "MatchingRules", "warm_up"]
