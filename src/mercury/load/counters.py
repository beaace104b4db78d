"""A driver's counters: updates sent, events received, and latencies.

Latencies are in buckets: millions in a few kilobytes, with percentiles to about a percent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.model.matching import EventReason, EventType

_EVENT_TYPES = max(EventType) + 1
_PER_OCTAVE = 64  # so a bucket is 1.1 % wide
_OCTAVES = 40  # from a microsecond to two weeks
_BUCKETS = _PER_OCTAVE * _OCTAVES


class TimeHistogram:
    """A histogram of times in microseconds; less than one counts as one."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._largest_us = 0.0

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, times_us: ArrayLike) -> None:
        times = np.maximum(np.asarray(times_us, np.float64), 1.0)
        if not times.size:
            return
        bucket = np.minimum((np.log2(times) * _PER_OCTAVE).astype(np.int64), _BUCKETS - 1)
        self._counts += np.bincount(bucket, minlength=_BUCKETS)
        self._largest_us = max(self._largest_us, float(times.max()))

    def percentile_us(self, percent: float) -> float | None:
        """The time that this percentage does not exceed; None without any."""
        total = len(self)
        if not total:
            return None
        rank = max(1, int(np.ceil(total * percent / 100.0)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        upper_us = 2.0 ** ((bucket + 1) / _PER_OCTAVE)
        return float(min(upper_us, self._largest_us))

    def to_json(self) -> dict[str, float | None]:
        """Milliseconds, for programs."""
        found = {f"p{p}_ms": self.percentile_us(p) for p in (50, 99)}
        found["max_ms"] = self._largest_us if len(self) else None
        return {
            name: None if value is None else round(value / 1000.0, 3)
            for name, value in found.items()
        }


@dataclass(slots=True)
class LoadCounters:
    """Counts of one run; None where a driver cannot know."""

    sent: int = 0
    unsent: int = 0  # the queue was full: the other side is too slow
    taken: int | None = None  # as the other side reports
    dropped: int | None = None  # taken, but invalid
    matches: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_EVENT_TYPES, np.int64))
    latency: TimeHistogram = field(default_factory=TimeHistogram)
    count_from_us: int = 0  # events of updates before this time are not counted
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        event_types: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        times_us: NDArray[np.int64],
        now_us: int | NDArray[np.int64],
    ) -> None:
        """Count received events; latency is measured from when their updates were due."""
        self.count(event_types, times_us)
        timed = (times_us >= self.count_from_us) & (reasons == EventReason.MOVED)
        self.latency.add((now_us - times_us)[timed])

    def count(self, event_types: NDArray[np.uint8], times_us: NDArray[np.int64]) -> None:
        """Count events without a known due time."""
        counted = np.minimum(event_types[times_us >= self.count_from_us], _EVENT_TYPES - 1)
        self.matches += np.bincount(counted, minlength=_EVENT_TYPES)

    def note(self, sentence: str) -> None:
        """Something that readers of the result should know; once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @property
    def events(self) -> int:
        return int(self.matches.sum())

    def matches_by_name(self) -> dict[str, int]:
        return {what.name.lower(): int(self.matches[what]) for what in EventType}
