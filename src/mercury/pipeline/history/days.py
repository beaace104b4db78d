"""The days (UTC) under which history is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(time_us: int) -> str:
    """The day under which a time is stored."""
    return (_EPOCH + timedelta(microseconds=time_us)).date().isoformat()


def days_of(from_us: int | None, to_us: int | None) -> tuple[str, str]:
    """The first and the last day of a span; open ends come before and after all days."""
    return "" if from_us is None else day_of(from_us), "~" if to_us is None else day_of(to_us)
