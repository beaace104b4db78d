"""Areas between the model and Protocol Buffers."""

from __future__ import annotations

from collections.abc import Sequence

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
from mercury.model.errors import AreaError
from mercury.wire import mercury_pb2 as pb


def position_to_pb(position: Position, target: pb.Position) -> None:
    """Write a position; the call also marks the field as present."""
    target.SetInParent()
    target.lat = position.lat
    target.lon = position.lon


def position_from_pb(source: pb.Position | pb.Telemetry) -> Position:
    """Read a position; raises AreaError where it is not on Earth."""
    return Position(source.lat, source.lon)


def polygon_to_pb(polygon: Polygon, target: pb.Polygon) -> None:
    """Write a polygon."""
    target.exterior.latlon.extend(_flat(polygon.exterior))
    for hole in polygon.holes:
        target.holes.add().latlon.extend(_flat(hole))


def polygon_from_pb(source: pb.Polygon) -> Polygon:
    """Read a polygon; raises AreaError where it cannot exist."""
    return Polygon(
        _positions(source.exterior.latlon),
        tuple(_positions(hole.latlon) for hole in source.holes),
    )


def area_to_pb(area: Area, target: pb.Area) -> None:
    """Write an area."""
    shape = area.shape
    match shape:
        case Circle():
            position_to_pb(shape.center, target.circle.center)
            target.circle.radius_m = shape.radius_m
        case Ellipse():
            ellipse = target.ellipse
            position_to_pb(shape.center, ellipse.center)
            ellipse.semi_major_m = shape.semi_major_m
            ellipse.semi_minor_m = shape.semi_minor_m
            ellipse.azimuth_deg = shape.azimuth_deg
        case Rectangle():
            rectangle = target.rectangle
            rectangle.SetInParent()
            rectangle.south, rectangle.west = shape.south, shape.west
            rectangle.north, rectangle.east = shape.north, shape.east
        case Polygon():
            polygon_to_pb(shape, target.polygon)
        case Corridor():
            target.corridor.line.latlon.extend(_flat(shape.line))
            target.corridor.width_m = shape.width_m
    if area.heading is not None:
        target.heading.SetInParent()
        target.heading.center_deg = area.heading.center_deg
        target.heading.half_width_deg = area.heading.half_width_deg
    if area.valid_from_us is not None:
        target.valid_from_us = area.valid_from_us
    if area.valid_until_us is not None:
        target.valid_until_us = area.valid_until_us


def area_from_pb(source: pb.Area) -> Area:
    """Read an area; raises AreaError where it cannot exist."""
    heading = None
    if source.HasField("heading"):
        heading = HeadingSector(source.heading.center_deg, source.heading.half_width_deg)
    return Area(
        shape=_shape(source),
        heading=heading,
        valid_from_us=source.valid_from_us if source.HasField("valid_from_us") else None,
        valid_until_us=source.valid_until_us if source.HasField("valid_until_us") else None,
    )


def _shape(source: pb.Area) -> Shape:
    match source.WhichOneof("shape"):
        case "circle":
            return Circle(position_from_pb(source.circle.center), source.circle.radius_m)
        case "ellipse":
            ellipse = source.ellipse
            return Ellipse(
                position_from_pb(ellipse.center),
                ellipse.semi_major_m,
                ellipse.semi_minor_m,
                ellipse.azimuth_deg,
            )
        case "rectangle":
            rectangle = source.rectangle
            return Rectangle(rectangle.south, rectangle.west, rectangle.north, rectangle.east)
        case "polygon":
            return polygon_from_pb(source.polygon)
        case "corridor":
            return Corridor(_positions(source.corridor.line.latlon), source.corridor.width_m)
    raise AreaError("an area of no known shape")


def _flat(positions: Sequence[Position]) -> list[float]:
    return [number for position in positions for number in (position.lat, position.lon)]


def _positions(latlon: Sequence[float]) -> tuple[Position, ...]:
    if len(latlon) % 2:
        raise AreaError("an odd number of coordinates")
    return tuple(Position(lat, lon) for lat, lon in zip(latlon[::2], latlon[1::2], strict=True))
