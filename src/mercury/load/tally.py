"""What a driver counts: what went out, what came of it, and how long that took."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mercury.load.histogram import TimeHistogram
from mercury.model.matching import EventReason, EventType

_EVENT_TYPES = max(EventType) + 1


@dataclass(slots=True)
class Tally:
    """Counts of one run; None is what a driver cannot know."""

    sent: int = 0
    unsent: int = 0  # there was no room for them any more: the other side takes too few
    taken: int | None = None  # the other side says so
    dropped: int | None = None  # it took them and could not use them
    matches: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_EVENT_TYPES, np.int64))
    latency: TimeHistogram = field(default_factory=TimeHistogram)
    count_from_us: int = 0  # what updates before this time bring about is not counted
    notes: list[str] = field(default_factory=list)

    def tell(
        self,
        event_types: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        times_us: NDArray[np.int64],
        now_us: int | NDArray[np.int64],
    ) -> None:
        """Count events that have just come; latency is that of updates, from when they were due."""
        self.count(event_types, times_us)
        timed = (times_us >= self.count_from_us) & (reasons == EventReason.MOVED)
        self.latency.add((now_us - times_us)[timed])

    def count(self, event_types: NDArray[np.uint8], times_us: NDArray[np.int64]) -> None:
        """Count events of which nobody knows when their update was due."""
        counted = np.minimum(event_types[times_us >= self.count_from_us], _EVENT_TYPES - 1)
        self.matches += np.bincount(counted, minlength=_EVENT_TYPES)

    def note(self, sentence: str) -> None:
        """Something that readers of the result should know; once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @property
    def events(self) -> int:
        """Of all kinds."""
        return int(self.matches.sum())

    def matches_by_name(self) -> dict[str, int]:
        """By what happened."""
        return {what.name.lower(): int(self.matches[what]) for what in EventType}
