"""State as bytes: a document of plain values, guarded by a version and a checksum."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from mercury.model.errors import SnapshotError

_HEADER = struct.Struct("<4sHI")  # which state, version, CRC-32 of the rest
_VERSION = 2

State = TypeVar("State")


def pack(magic: bytes, document: dict[str, Any]) -> bytes:
    """The document as bytes; numbers are restored exactly, bytes as hex digits."""
    text = json.dumps(document, separators=(",", ":"), default=bytes.hex)
    body = zlib.compress(text.encode(), level=1)
    return _HEADER.pack(magic, _VERSION, zlib.crc32(body)) + body


def unpack(magic: bytes, data: bytes, read: Callable[[dict[str, Any]], State]) -> State:
    """The result of `read` on the document, or SnapshotError."""
    if len(data) < _HEADER.size:
        raise SnapshotError(f"a snapshot has at least {_HEADER.size} bytes, not {len(data)}")
    found, version, checksum = _HEADER.unpack_from(data)
    if found != magic:
        raise SnapshotError(f"the snapshot starts with {found!r}, not {magic!r}")
    if version != _VERSION:
        raise SnapshotError(f"the snapshot is of version {version}, this reads {_VERSION}")
    body = memoryview(data)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise SnapshotError("the snapshot is damaged: its checksum does not fit")
    try:
        return read(json.loads(zlib.decompress(body)))
    except (zlib.error, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
