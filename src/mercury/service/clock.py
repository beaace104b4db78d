"""The two clocks of a service: one for intervals, one for time stamps."""

from __future__ import annotations

import time
from datetime import datetime, tzinfo

from mercury.model.instant import Instant

_LATEST_US = 253_370_764_800_000_000  # the year 9999

now = time.monotonic  # for intervals: never jumps


def now_us() -> int:
    """Microseconds since the epoch, for time stamps and expiry."""
    return time.time_ns() // 1000


def clock_time(time_us: int, zone: tzinfo | None = None) -> str:
    """A time of day for people; no zone is the local one."""
    return datetime.fromtimestamp(seconds_of(time_us), zone).strftime("%H:%M:%S.%f")[:-3]


def seconds_of(time_us: int) -> float:
    """Seconds since the epoch, within the years that a calendar knows; packets hold any number."""
    return min(max(time_us, 0), _LATEST_US) / 1e6


def instant() -> Instant:
    """This moment, for cores that need both clocks."""
    return Instant(now(), now_us())


def epoch_us() -> int:
    """The wall clock when `now()` was zero."""
    return now_us() - int(now() * 1e6)
