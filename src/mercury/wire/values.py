"""Key/value pairs between the model and Protocol Buffers."""

from __future__ import annotations

from typing import cast

from mercury.model.errors import MessageError
from mercury.model.message import Value, Values
from mercury.wire import mercury_pb2 as pb


def values_to_pb(values: Values, target: object) -> None:
    """Write key/value pairs."""
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
            raise MessageError(f"the value of {key!r} is a {type(value).__name__}, not a plain one")


def values_from_pb(source: object) -> dict[str, Value]:
    """Read key/value pairs; a value of a type this version does not know is left out."""
    result: dict[str, Value] = {}
    for key, value in cast("dict[str, pb.Value]", source).items():
        which = value.WhichOneof("value")
        if which is not None:
            result[key] = getattr(value, which)
    return result
