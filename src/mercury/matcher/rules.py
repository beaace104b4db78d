"""From settings to what an engine wants."""

from __future__ import annotations

from mercury.config import MatcherSettings
from mercury.matching import Engine, MatchingRules
from mercury.model.matching import NearSubscription, Publication


def rules_of(settings: MatcherSettings) -> MatchingRules:
    """The rules that settings ask for."""
    return MatchingRules(
        overlap=settings.overlap,
        hysteresis_m=settings.hysteresis_m,
        ttl_s=settings.ttl_s,
        max_radius_m=settings.max_radius_m,
        max_publication_radius_m=settings.max_publication_radius_m,
        topics=None if settings.topics is None else frozenset(settings.topics),
    )


def warm_up() -> None:
    """Have the engine's machine code made or loaded, before somebody waits for it."""
    engine = Engine()
    taxi = engine.publish(Publication("taxi", "warm-up"), 0)
    me = engine.subscribe(NearSubscription("me", "warm-up", 100.0, where="seats > 0"), 0)
    engine.move([taxi, me], [0.0, 0.0], [0.0, 0.0], [1, 1], [0.0, 0.0])
    engine.withdraw(taxi, 2)
    engine.tick(3)
    engine.take()
