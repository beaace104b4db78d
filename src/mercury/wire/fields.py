"""Parts of messages between the model and Protocol Buffers: values, positions, areas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
)
from mercury.model.errors import AreaError, MessageError
from mercury.model.message import Value, Values
from mercury.wire import mercury_pb2 as pb

Model = TypeVar("Model")
Write = Callable[[Model, Any], None]  # an object into a message
Read = Callable[[Any], Model]  # raises what the model raises where it cannot be
# By the field of the Envelope: the class of the payload, and how it is written and read.
PayloadFields = dict[str, tuple[type, Write[Any], Read[Any]]]


def values_to_pb(values: Values, target: object) -> None:
    fields = cast("dict[str, pb.Value]", target)
    for key, value in values.items():
        if isinstance(value, bool):  # before int: a bool is one
            fields[key].boolean = value
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                raise MessageError(f"the value of {key!r} does not fit in 64 bits")
            fields[key].integer = value
        elif isinstance(value, float):
            fields[key].real = value
        elif isinstance(value, str):
            fields[key].text = value
        elif isinstance(value, bytes):
            fields[key].blob = value
        else:
            raise MessageError(f"the value of {key!r} is no text, number, True, False or bytes")


def values_from_pb(source: object) -> dict[str, Value]:
    """Read key/value pairs; a value of a type this version does not know is left out."""
    result: dict[str, Value] = {}
    for key, value in cast("dict[str, pb.Value]", source).items():
        which = value.WhichOneof("value")
        if which is not None:
            result[key] = getattr(value, which)
    return result


def mapped(model: type[Model], message: type[Message]) -> tuple[Write[Model], Read[Model]]:
    """For a class whose message has fields of the same names; what is None is absent."""
    always: list[str] = []
    optional: list[str] = []
    nested: list[tuple[str, Write[Any], Read[Any]]] = []
    described = message.DESCRIPTOR.fields_by_name
    for name in (field.name for field in fields(model) if field.init):  # type: ignore[arg-type]
        if described[name].message_type is not None:
            nested.append((name, *_NESTED[name]))
        elif described[name].has_presence:
            optional.append(name)
        else:
            always.append(name)

    def write(source: Model, target: Any) -> None:
        target.SetInParent()  # or else a message of defaults would be absent
        for name in always:
            setattr(target, name, getattr(source, name))
        for name in optional:
            value = getattr(source, name)
            if value is not None:
                setattr(target, name, value)
        for name, write_nested, _ in nested:
            value = getattr(source, name)
            if value is not None:
                write_nested(value, getattr(target, name))

    def read(source: Any) -> Model:
        found = {name: getattr(source, name) for name in always}
        for name in optional:
            found[name] = getattr(source, name) if source.HasField(name) else None
        for name, _, read_nested in nested:
            # A map is there, if only empty.
            given = name == "values" or source.HasField(name)
            found[name] = read_nested(getattr(source, name)) if given else None
        return model(**found)

    return write, read


def _line_to_pb(line: tuple[Position, ...], target: pb.Ring) -> None:
    target.latlon.extend([number for point in line for number in (point.lat, point.lon)])


def _line_from_pb(source: pb.Ring) -> tuple[Position, ...]:
    lats, lons = source.latlon[::2], source.latlon[1::2]
    if len(lats) != len(lons):
        raise AreaError("an odd number of coordinates")
    return tuple(map(Position, lats, lons))


def _polygon_to_pb(polygon: Polygon, target: pb.Polygon) -> None:
    _line_to_pb(polygon.exterior, target.exterior)
    for hole in polygon.holes:
        _line_to_pb(hole, target.holes.add())


def _polygon_from_pb(source: pb.Polygon) -> Polygon:
    return Polygon(_line_from_pb(source.exterior), tuple(map(_line_from_pb, source.holes)))


# Fields that are messages themselves.
_NESTED: dict[str, tuple[Write[Any], Read[Any]]] = {
    "values": (values_to_pb, values_from_pb),
    "line": (_line_to_pb, _line_from_pb),
    "polygon": (_polygon_to_pb, _polygon_from_pb),
}
_NESTED["position"] = _NESTED["center"] = mapped(Position, pb.Position)
_SHAPES: dict[str, tuple[Write[Any], Read[Any]]] = {
    "circle": mapped(Circle, pb.Circle),
    "ellipse": mapped(Ellipse, pb.Ellipse),
    "rectangle": mapped(Rectangle, pb.Rectangle),
    "polygon": _NESTED["polygon"],
    "corridor": mapped(Corridor, pb.Corridor),
}
_write_heading, _read_heading = mapped(HeadingSector, pb.HeadingSector)


def area_to_pb(area: Area, target: pb.Area) -> None:
    name = type(area.shape).__name__.lower()
    write, _ = _SHAPES[name]
    write(area.shape, getattr(target, name))
    if area.heading is not None:
        _write_heading(area.heading, target.heading)
    if area.valid_from_us is not None:
        target.valid_from_us = area.valid_from_us
    if area.valid_until_us is not None:
        target.valid_until_us = area.valid_until_us


def area_from_pb(source: pb.Area) -> Area:
    """Read an area; raises AreaError where it cannot exist."""
    name = source.WhichOneof("shape")
    if name is None:
        raise AreaError("an area of no known shape")
    _, read = _SHAPES[name]
    return Area(
        shape=read(getattr(source, name)),
        heading=_read_heading(source.heading) if source.HasField("heading") else None,
        valid_from_us=source.valid_from_us if source.HasField("valid_from_us") else None,
        valid_until_us=source.valid_until_us if source.HasField("valid_until_us") else None,
    )
