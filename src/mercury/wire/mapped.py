"""Classes of the model that Protocol Buffers write as messages with fields of the same names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from mercury.model.area import Polygon, Position
from mercury.model.errors import AreaError
from mercury.wire import mercury_pb2 as pb
from mercury.wire.values import values_from_pb, values_to_pb

Model = TypeVar("Model")


class Mapped(Generic[Model]):
    """Writes and reads one class; what is None is absent."""

    def __init__(self, model: type[Model], message: type[Message]) -> None:
        self._model = model
        self._always: list[str] = []
        self._optional: list[str] = []
        self._nested: list[tuple[str, Callable[[Any, Any], None], Callable[[Any], Any]]] = []
        described = message.DESCRIPTOR.fields_by_name
        for name in (field.name for field in fields(model)):  # type: ignore[arg-type]
            if described[name].message_type is not None:
                self._nested.append((name, *_NESTED[name]))
            elif described[name].has_presence:
                self._optional.append(name)
            else:
                self._always.append(name)

    def write(self, source: Model, target: Any) -> None:
        """Write an object into a message; the call also marks the message as present."""
        target.SetInParent()
        for name in self._always:
            setattr(target, name, getattr(source, name))
        for name in self._optional:
            value = getattr(source, name)
            if value is not None:
                setattr(target, name, value)
        for name, write, _ in self._nested:
            value = getattr(source, name)
            if value is not None:
                write(value, getattr(target, name))

    def read(self, source: Any) -> Model:
        """Read an object; raises what the model raises where it cannot be."""
        found = {name: getattr(source, name) for name in self._always}
        for name in self._optional:
            found[name] = getattr(source, name) if source.HasField(name) else None
        for name, _, read in self._nested:
            # A map is there, if only empty.
            given = name == "values" or source.HasField(name)
            found[name] = read(getattr(source, name)) if given else None
        return self._model(**found)


def flat(positions: tuple[Position, ...]) -> list[float]:
    """Latitudes and longitudes by turns."""
    return [number for position in positions for number in (position.lat, position.lon)]


def positions_from(latlon: Any) -> tuple[Position, ...]:
    """The positions again; raises AreaError where they cannot be."""
    if len(latlon) % 2:
        raise AreaError("an odd number of coordinates")
    return tuple(Position(lat, lon) for lat, lon in zip(latlon[::2], latlon[1::2], strict=True))


def polygon_to_pb(polygon: Polygon, target: pb.Polygon) -> None:
    """Write a polygon."""
    target.exterior.latlon.extend(flat(polygon.exterior))
    for hole in polygon.holes:
        target.holes.add().latlon.extend(flat(hole))


def polygon_from_pb(source: pb.Polygon) -> Polygon:
    """Read a polygon; raises AreaError where it cannot exist."""
    holes = tuple(positions_from(hole.latlon) for hole in source.holes)
    return Polygon(positions_from(source.exterior.latlon), holes)


_NESTED: dict[str, tuple[Callable[[Any, Any], None], Callable[[Any], Any]]] = {
    "values": (values_to_pb, values_from_pb),
    "polygon": (polygon_to_pb, polygon_from_pb),
}
POSITION = Mapped(Position, pb.Position)
_NESTED["position"] = _NESTED["center"] = (POSITION.write, POSITION.read)
