"""An engine as bytes: its arrays unchanged, so that it continues exactly as before."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.model.area import Area
from mercury.model.errors import MatchingError, MercuryError
from mercury.model.geojson import area_from_geojson, area_to_geojson
from mercury.model.matching import NearSubscription, Publication

_MAGIC = b"MvE2"
_HEADER = struct.Struct("<4sII")  # magic, CRC-32 of the rest, length of the document

Entity = Publication | NearSubscription


def pack(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A document and arrays as bytes, guarded by a check sum."""
    text = json.dumps(document, separators=(",", ":")).encode()
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **dict(arrays))
    body = zlib.compress(text + file.getvalue(), level=1)
    return _HEADER.pack(_MAGIC, zlib.crc32(body), len(text)) + body


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What was packed, or MatchingError."""
    if len(data) < _HEADER.size:
        raise MatchingError("the snapshot is too short", "snapshot")
    magic, checksum, length = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC:
        raise MatchingError(
            "this is no snapshot of an engine, or one of another version", "snapshot"
        )
    if zlib.crc32(body) != checksum:
        raise MatchingError("the snapshot is damaged: its check sum does not fit", "snapshot")
    whole = zlib.decompress(body)
    with np.load(io.BytesIO(whole[length:]), allow_pickle=False) as arrays:
        return json.loads(whole[:length]), {name: arrays[name] for name in arrays.files}


def entity_to_json(entity: Entity) -> dict[str, Any]:
    """An entity as plain values."""
    plain: dict[str, Any] = {field.name: getattr(entity, field.name) for field in fields(entity)}
    if isinstance(entity, Publication):
        plain["values"] = dict(entity.values)
    elif entity.polygon is not None:
        plain["polygon"] = area_to_geojson(Area(entity.polygon))
    return plain


def entity_from_json(plain: dict[str, Any]) -> Entity:
    """The entity again."""
    try:
        if "values" in plain:
            return Publication(**plain)
        if polygon := plain.get("polygon"):
            plain["polygon"] = area_from_geojson(polygon).shape
        return NearSubscription(**plain)
    except (TypeError, MercuryError) as error:
        raise MatchingError(f"the snapshot holds what cannot be: {error}", "snapshot") from error
