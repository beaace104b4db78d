"""What holds for all pairs."""

from __future__ import annotations

from dataclasses import dataclass

from mercury.model.errors import MatchingError


@dataclass(frozen=True, slots=True)
class MatchingRules:
    """The rules of an engine; every worker of one system has the same."""

    overlap: bool = False  # a publication's own scope counts, too, not its centre alone
    hysteresis_m: float = 10.0  # of subscriptions that do not say
    ttl_s: float = 60.0  # of entities that do not say
    max_radius_m: float = 50_000.0  # of a subscription's scope
    max_publication_radius_m: float = 5_000.0
    topics: frozenset[str] | None = None  # None: any

    def check(self, topic: str, radius_m: float, *, publication: bool) -> None:
        """Refuse what these rules do not allow."""
        if self.topics is not None and topic not in self.topics:
            raise MatchingError(f"there is no topic {topic!r} here", "topic")
        largest = self.max_publication_radius_m if publication else self.max_radius_m
        if radius_m > largest:
            raise MatchingError(
                f"a scope of {radius_m / 1000:,.1f} km is wider than the {largest / 1000:,.1f} km"
                " allowed here",
                "radius",
            )
