"""From settings to the rules of an engine."""

from __future__ import annotations

from mercury.config import MatcherSettings
from mercury.matching import MatchingRules


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
