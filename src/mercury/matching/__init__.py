"""Matching: moving publications meet moving subscriptions. A core: arrays in, events out."""

from __future__ import annotations

from mercury.matching.engine import Engine, Found, warm_up
from mercury.matching.events import Events
from mercury.matching.rules import MatchingRules

__all__ = ["Engine", "Events", "Found", "MatchingRules", "warm_up"]
