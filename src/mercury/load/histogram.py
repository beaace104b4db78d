"""Times in buckets: millions of them in a few kilobytes, with percentiles to about a percent."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_PER_OCTAVE = 64  # so a bucket is 1.1 % wide
_OCTAVES = 40  # from a microsecond to two weeks
_BUCKETS = _PER_OCTAVE * _OCTAVES


class TimeHistogram:
    """How often which time was seen, in microseconds; less than one counts as one."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._largest_us = 0.0

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, times_us: ArrayLike) -> None:
        """Count some times."""
        times = np.maximum(np.asarray(times_us, np.float64), 1.0)
        if not times.size:
            return
        bucket = np.minimum((np.log2(times) * _PER_OCTAVE).astype(np.int64), _BUCKETS - 1)
        self._counts += np.bincount(bucket, minlength=_BUCKETS)
        self._largest_us = max(self._largest_us, float(times.max()))

    def percentile_us(self, percent: float) -> float | None:
        """The time that so many percent do not exceed; None without any."""
        total = len(self)
        if not total:
            return None
        rank = max(1, int(np.ceil(total * percent / 100.0)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        upper_us = 2.0 ** ((bucket + 1) / _PER_OCTAVE)
        return float(min(upper_us, self._largest_us))

    def to_json(self) -> dict[str, float | None]:
        """Milliseconds, for programs."""
        percentiles = {f"p{p:g}_ms": self.percentile_us(p) for p in (50, 99)}
        found = {**percentiles, "max_ms": self._largest_us if len(self) else None}
        return {
            name: None if value is None else round(value / 1000.0, 3)
            for name, value in found.items()
        }
