"""Times on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mercury.model.errors import ConfigurationError
from mercury.service import now_us

TIME_HELP = "UTC unless it says otherwise, as 2026-03-01T08:30, or an age as 90s, 30m, 2h, 1d"

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(text: str | None, option: str) -> int | None:
    """Read a point in time, in microseconds since the epoch."""
    if text is None:
        return None
    age = _LENGTH.fullmatch(text)
    if age is not None:
        return now_us() - int(float(age[1]) * _UNITS_S[age[2]] * 1e6)
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return (time - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{option} takes a time as {TIME_HELP}, not {text!r}") from None


def length_s(text: str, option: str) -> float:
    """Read how long, in seconds."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"{option} takes a length of time as 10s, 2m, 1h, not {text!r}")
    return float(found[1]) * _UNITS_S[found[2]]


def span(begin: str | None, end: str | None) -> tuple[int | None, int | None]:
    """Read `--from` and `--to`."""
    from_us, to_us = instant(begin, "--from"), instant(end, "--to")
    if from_us is not None and to_us is not None and from_us >= to_us:
        raise ConfigurationError("--from is not before --to")
    return from_us, to_us
