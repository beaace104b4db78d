"""Parses values of the command line: numbers, positions, areas, times."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mercury.model.area import Area, Circle, Position
from mercury.model.errors import AreaError, ConfigurationError
from mercury.model.geojson import area_from_geojson
from mercury.service import now_us

AREA_FORM = "LAT,LON,RADIUS_M|GEOJSON"
TIME_HELP = "2026-03-01T08:30, in UTC if without an offset, or an age as 90s, 30m, 2h, 1d"

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def numbers(text: str, count: int | None, otherwise: str) -> list[float]:
    """Read `count` numbers, or any count of them, with commas between; or raise `otherwise`."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or len(found) != (count or len(found)):
        raise ConfigurationError(otherwise)
    return found


def position(text: str) -> Position:
    """Read `lat,lon`."""
    return Position(*numbers(text, 2, f"expected lat,lon, not {text!r}"))


def circle(text: str) -> Area:
    """Read `lat,lon,radius_m`."""
    lat, lon, radius_m = numbers(text, 3, f"expected lat,lon,radius_m, not {text!r}")
    return Area(Circle(Position(lat, lon), radius_m))


def geojson_area(text: str, what: str) -> Area:
    """Read an area from GeoJSON text, or from a file of it."""
    try:
        if not text.lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
        return area_from_geojson(text)
    except OSError as error:
        raise ConfigurationError(f"cannot read {what} {text}: {error.strerror}") from None
    except (AreaError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{what} is no area: {error}") from None


def area(text: str) -> Area:
    """Read `--area`: a circle, GeoJSON text, or a file of it."""
    is_circle = text.count(",") == 2 and "{" not in text
    return circle(text) if is_circle else geojson_area(text, "--area")


def instant(text: str | None, option: str) -> int | None:
    """Read a point in time, in microseconds since the epoch."""
    if text is None:
        return None
    if _LENGTH.fullmatch(text):
        return now_us() - int(length_s(text, option) * 1e6)
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


def pace(text: str) -> float:
    """Read `--speed`: how many times as fast as it was; `max` is infinity."""
    try:
        found = math.inf if text == "max" else float(text)
    except ValueError:
        found = math.nan
    if not found > 0.0 or (found == math.inf and text != "max"):
        raise ConfigurationError(f"--speed takes max or a positive number, not {text!r}")
    return found
