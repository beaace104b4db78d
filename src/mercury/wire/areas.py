"""Areas between the model and Protocol Buffers."""

from __future__ import annotations

from typing import Any

from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Rectangle,
    Shape,
)
from mercury.model.errors import AreaError
from mercury.wire import mercury_pb2 as pb
from mercury.wire.mapped import Mapped, flat, polygon_from_pb, polygon_to_pb, positions_from

_HEADING = Mapped(HeadingSector, pb.HeadingSector)
_SHAPES: dict[str, Mapped[Any]] = {
    "circle": Mapped(Circle, pb.Circle),
    "ellipse": Mapped(Ellipse, pb.Ellipse),
    "rectangle": Mapped(Rectangle, pb.Rectangle),
}


def area_to_pb(area: Area, target: pb.Area) -> None:
    """Write an area."""
    shape = area.shape
    match shape:
        case Polygon():
            polygon_to_pb(shape, target.polygon)
        case Corridor():
            target.corridor.line.latlon.extend(flat(shape.line))
            target.corridor.width_m = shape.width_m
        case _:
            name = type(shape).__name__.lower()
            _SHAPES[name].write(shape, getattr(target, name))
    if area.heading is not None:
        _HEADING.write(area.heading, target.heading)
    if area.valid_from_us is not None:
        target.valid_from_us = area.valid_from_us
    if area.valid_until_us is not None:
        target.valid_until_us = area.valid_until_us


def area_from_pb(source: pb.Area) -> Area:
    """Read an area; raises AreaError where it cannot exist."""
    return Area(
        shape=_shape(source),
        heading=_HEADING.read(source.heading) if source.HasField("heading") else None,
        valid_from_us=source.valid_from_us if source.HasField("valid_from_us") else None,
        valid_until_us=source.valid_until_us if source.HasField("valid_until_us") else None,
    )


def _shape(source: pb.Area) -> Shape:
    match source.WhichOneof("shape"):
        case "polygon":
            return polygon_from_pb(source.polygon)
        case "corridor":
            return Corridor(positions_from(source.corridor.line.latlon), source.corridor.width_m)
        case None:
            raise AreaError("an area of no known shape")
        case name:
            shape: Shape = _SHAPES[name].read(getattr(source, name))
            return shape
