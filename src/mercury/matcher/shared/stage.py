"""What the stages have in common: parcels, state as bytes, what was seen before."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.model.errors import MatchingError
from mercury.wire.records import Headers

_MAGIC = b"MvS1"
_LENGTH = struct.Struct("<Q")


class StageNumber(IntEnum):
    """Which stage a record follows from."""

    ROSTER = 1
    LANES = 2
    MEETINGS = 3


class Parcel(NamedTuple):
    """A record to append."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers = ()


Part = bytes | NDArray[np.generic]


def pack_state(facts: Mapping[str, object], **parts: Part) -> bytes:
    """State as bytes: facts that JSON knows, and parts that are bytes or arrays."""
    shapes = {
        name: part.dtype.descr if isinstance(part, np.ndarray) else None
        for name, part in parts.items()
    }
    blobs = [part.tobytes() if isinstance(part, np.ndarray) else part for part in parts.values()]
    head = json.dumps({"facts": facts, "shapes": shapes}).encode()
    pieces = [_MAGIC]
    for piece in (head, *blobs):
        pieces += (_LENGTH.pack(len(piece)), piece)
    return b"".join(pieces)


class State:
    """Reads what `pack_state` made; raises MatchingError for anything else."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != _MAGIC:
            raise MatchingError("these bytes are no state of a stage", "state")
        pieces = unpack_pieces(data[len(_MAGIC) :])
        if not pieces:
            raise MatchingError("the state of a stage is cut off", "state")
        head = json.loads(pieces[0])
        self.facts: dict[str, Any] = head["facts"]
        self._shapes: dict[str, object] = head["shapes"]
        self._pieces: dict[str, bytes] = dict(zip(self._shapes, pieces[1:], strict=True))

    def blob(self, name: str) -> bytes:
        return self._pieces[name]

    def array(self, name: str) -> NDArray[np.void]:
        """An array of rows, writable."""
        shape = self._shapes[name]
        assert isinstance(shape, list)
        fields = [(field[0], field[1]) for field in shape]
        kind = np.dtype(fields if fields[0][0] else fields[0][1])
        return np.frombuffer(self._pieces[name], kind).copy()

    def number(self, name: str) -> int:
        return int(self.facts[name])


def pack_pieces(pieces: Sequence[bytes]) -> bytes:
    """Several pieces as one."""
    return b"".join(_LENGTH.pack(len(piece)) + piece for piece in pieces)


def unpack_pieces(data: bytes) -> list[bytes]:
    """The pieces; raises MatchingError where the last is not whole."""
    found, at = [], 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            break
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + size
        found.append(data[at - size : at])
    if at != len(data):
        raise MatchingError("the state of a stage is cut off", "state")
    return found
