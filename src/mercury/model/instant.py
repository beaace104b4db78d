"""A point in time, on the two clocks of a process."""

from __future__ import annotations

from typing import NamedTuple


class Instant(NamedTuple):
    """The same moment on both clocks of a process."""

    s: float  # for intervals: monotonic, of this process only
    us: int  # for time stamps and expiry: microseconds since the epoch
