"""Record headers as one blob: for each a length and the name, a length and the value."""

from __future__ import annotations

import struct
from functools import lru_cache

from mercury.bus.api import Headers

_NAME = struct.Struct("<H")
_VALUE = struct.Struct("<I")
# Headers repeat: the route of all replies is the same, a client's place holds until it reports.
_REMEMBERED = 8192


def check_headers(headers: Headers) -> Headers:
    """Return the headers as tuples of str and bytes, or raise TypeError."""
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise TypeError(f"a header is a str and bytes, not {name!r} and {value!r}")
    return tuple((name, value) for name, value in headers)


def encode_headers(headers: Headers) -> bytes:
    try:
        return _encode(headers)
    except TypeError:  # a list, or something that is no header at all
        return _encode(check_headers(headers))


@lru_cache(_REMEMBERED)
def _encode(headers: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in check_headers(headers):
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise ValueError(f"the header name {name[:40]!r}… is longer than 65535 bytes")
        parts += (_NAME.pack(len(encoded)), encoded, _VALUE.pack(len(value)), value)
    return b"".join(parts)


@lru_cache(_REMEMBERED)
def decode_headers(blob: bytes) -> Headers:
    headers = []
    at = 0
    while at < len(blob):
        (size,) = _NAME.unpack_from(blob, at)
        at += _NAME.size
        name = blob[at : at + size].decode()
        at += size
        (size,) = _VALUE.unpack_from(blob, at)
        at += _VALUE.size
        headers.append((name, blob[at : at + size]))
        at += size
    return tuple(headers)
