"""Places and areas on the command line."""

from __future__ import annotations

from pathlib import Path

from mercury.model.area import Area, Circle, Position
from mercury.model.errors import AreaError, ConfigurationError
from mercury.model.geojson import area_from_geojson


def numbers(text: str, names: str) -> list[float]:
    """Read `1,2,3` given as `lat,lon,radius`; a clear error otherwise."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != len(names.split(",")):
        raise ConfigurationError(f"expected {names}, not {text!r}")
    return found


def position(text: str) -> Position:
    """Read `lat,lon`."""
    try:
        return Position(*numbers(text, "lat,lon"))
    except AreaError as error:
        raise ConfigurationError(str(error)) from None


def circle(text: str) -> Area:
    """Read `lat,lon,radius_m`."""
    lat, lon, radius_m = numbers(text, "lat,lon,radius_m")
    try:
        return Area(Circle(Position(lat, lon), radius_m))
    except AreaError as error:
        raise ConfigurationError(str(error)) from None


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
