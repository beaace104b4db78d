"""Areas as GeoJSON (RFC 7946): what APIs, files and the map speak.

GeoJSON has no circles, ellipses or corridors: these are a Point or LineString whose properties
carry the rest. Reading back what was written gives an equal area.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
    Shape,
)
from mercury.model.errors import AreaError, shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DEFAULT_SHAPE = {"Point": "circle", "Polygon": "polygon", "LineString": "corridor"}
# Of each shape: its geometry, and what the properties carry besides.
_SHAPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "circle": ("Point", ("radius_m",)),
    "ellipse": ("Point", ("semi_major_m", "semi_minor_m", "azimuth_deg")),
    "rectangle": ("Polygon", ()),
    "polygon": ("Polygon", ()),
    "corridor": ("LineString", ("width_m",)),
}


def area_to_geojson(area: Area) -> dict[str, Any]:
    feature: dict[str, Any] = {"type": "Feature"}
    shape = area.shape
    name = type(shape).__name__.lower()
    kind, carried = _SHAPES[name]
    coordinates: list[Any]
    match shape:
        case Circle() | Ellipse():
            coordinates = _coordinates(shape.center)
        case Rectangle():
            # RFC 7946 §5.2: a bounding box that crosses the antimeridian has west > east.
            feature["bbox"] = [shape.west, shape.south, shape.east, shape.north]
            coordinates = [_rectangle_ring(shape)]
        case Polygon():
            # RFC 7946 §3.1.6: exteriors counterclockwise and holes clockwise, as stored; closed.
            coordinates = [
                [_coordinates(p) for p in (*ring, ring[0])]
                for ring in (shape.exterior, *shape.holes)
            ]
        case Corridor():
            coordinates = [_coordinates(p) for p in shape.line]
    properties: dict[str, Any] = {"shape": name}
    properties |= {field: getattr(shape, field) for field in carried}
    if area.heading is not None:
        properties["heading"] = asdict(area.heading)
    for name in ("valid_from", "valid_until"):
        instant_us = getattr(area, f"{name}_us")
        if instant_us is not None:
            instant = _EPOCH + timedelta(microseconds=instant_us)
            properties[name] = instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    feature["geometry"] = {"type": kind, "coordinates": coordinates}
    feature["properties"] = properties
    return feature


def area_from_geojson(obj: Mapping[str, Any] | str) -> Area:
    """The area a GeoJSON Feature or bare Polygon geometry stands for, as an object or as text."""
    try:
        parsed = json.loads(obj) if isinstance(obj, str) else obj
    except (ValueError, RecursionError) as error:
        raise AreaError(f"not JSON: {error}") from None
    document = _mapping(parsed, "GeoJSON")
    kind = document.get("type")
    if kind == "Feature":
        geometry = _mapping(document.get("geometry"), "a feature's geometry")
        given = document.get("properties")
        properties = {} if given is None else _mapping(given, "a feature's properties")
    elif isinstance(kind, str) and kind in _DEFAULT_SHAPE:
        geometry, properties = document, {}
    else:
        raise AreaError(f"GeoJSON must be a Feature or a Polygon, not {shown(kind)}")
    heading = properties.get("heading")
    return Area(
        shape=_shape(document, geometry, properties),
        heading=None if heading is None else _heading(heading),
        valid_from_us=_instant(properties, "valid_from"),
        valid_until_us=_instant(properties, "valid_until"),
    )


def _shape(
    document: Mapping[str, Any], geometry: Mapping[str, Any], properties: Mapping[str, Any]
) -> Shape:
    kind = geometry.get("type")
    if not isinstance(kind, str) or kind not in _DEFAULT_SHAPE:
        raise AreaError(
            f"an area's geometry must be a Point, LineString or Polygon, not {shown(kind)}"
        )
    name = properties.get("shape")
    name = _DEFAULT_SHAPE[kind] if name is None else name
    if not isinstance(name, str) or name not in _SHAPES:
        raise AreaError(f"unknown shape {shown(name)}")
    needed, carried = _SHAPES[name]
    if needed != kind:
        raise AreaError(f"shape {name} needs a {needed} geometry, not a {kind}")
    coordinates = geometry.get("coordinates")
    owner = name if name == "ellipse" else kind
    values = [_required(properties, field, owner) for field in carried]
    match name:
        case "circle":
            return Circle(_position(coordinates), *values)
        case "ellipse":
            return Ellipse(_position(coordinates), *values)
        case "corridor":
            return Corridor(_positions(coordinates), *values)
        case "rectangle":
            return _rectangle(document, geometry)
        case _:
            rings = [_positions(ring) for ring in _sequence(coordinates, "a Polygon's coordinates")]
            if not rings:
                raise AreaError("a Polygon needs at least one ring")
            return Polygon(rings[0], tuple(rings[1:]))


def _rectangle(document: Mapping[str, Any], geometry: Mapping[str, Any]) -> Rectangle:
    box = document.get("bbox", geometry.get("bbox"))
    if box is None:
        raise AreaError("shape rectangle needs a bbox")
    numbers = _sequence(box, "a bbox")
    if len(numbers) != 4:
        raise AreaError(f"a rectangle's bbox needs 4 numbers, not {len(numbers)}")
    west, south, east, north = numbers
    rectangle = Rectangle(south=south, west=west, north=north, east=east)
    # A ring that was edited without its bbox would otherwise be silently ignored.
    rings = _sequence(geometry.get("coordinates"), "a Polygon's coordinates")
    corners = {(p.lon, p.lat) for ring in rings for p in _positions(ring)}
    if len(rings) != 1 or corners != {(x, y) for x, y in _rectangle_ring(rectangle)}:
        raise AreaError("a rectangle's ring does not have the corners of its bbox")
    return rectangle


def _rectangle_ring(shape: Rectangle) -> list[list[float]]:
    west, south, east, north = shape.west, shape.south, shape.east, shape.north
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def _heading(value: object) -> HeadingSector:
    given = _mapping(value, "heading")
    fields = ("center_deg", "half_width_deg")
    return HeadingSector(*(_required(given, field, "heading") for field in fields))


def _coordinates(position: Position) -> list[float]:
    return [position.lon, position.lat]


def _position(value: object) -> Position:
    numbers = _sequence(value, "a position")
    # RFC 7946 §3.1.1: a third number is the altitude, which areas do not have.
    if len(numbers) not in (2, 3):
        raise AreaError(f"a position needs a longitude and a latitude, not {len(numbers)} numbers")
    return Position(lat=numbers[1], lon=numbers[0])


def _positions(value: object) -> tuple[Position, ...]:
    return tuple(_position(item) for item in _sequence(value, "a line of positions"))


def _required(properties: Mapping[str, Any], name: str, owner: str) -> Any:
    value = properties.get(name)
    if value is None:
        raise AreaError(f"{owner} needs {name}")
    return value


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise AreaError(f"{name} must be an object, not {shown(value)}")
    return value


def _sequence(value: object, name: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise AreaError(f"{name} must be a list, not {shown(value)}")
    return value


def _instant(properties: Mapping[str, Any], name: str) -> int | None:
    value = properties.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or _RFC3339.fullmatch(value) is None:
        raise AreaError(f"{name} must be an RFC 3339 time with its zone, not {shown(value)}")
    try:
        instant = datetime.fromisoformat(value.upper())
        return (instant - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise AreaError(f"{name} {value} is not a time that exists") from None
