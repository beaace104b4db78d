"""Record headers as one blob: for each a length and the name, a length and the value."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

from mercury.bus.api import Headers

_NAME = struct.Struct("<H")
_VALUE = struct.Struct("<I")


def check_headers(headers: Headers) -> Headers:
    """Return the headers as tuples of str and bytes, or raise TypeError."""
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise TypeError(f"a header is a str and bytes, not {name!r} and {value!r}")
    return tuple((name, value) for name, value in headers)


def encode_headers(headers: Headers) -> bytes:
    try:
        return b"".join([header_prefix(name, len(value)) + value for name, value in headers])
    except (TypeError, AttributeError):
        check_headers(headers)  # says what is wrong
        raise


@lru_cache(4096)  # names are few, and the values of one name mostly have one length
def header_prefix(name: str, size: int) -> bytes:
    encoded = name.encode()
    if len(encoded) > 0xFFFF:
        raise ValueError(f"the header name {name[:40]!r}… is longer than 65535 bytes")
    return _NAME.pack(len(encoded)) + encoded + _VALUE.pack(size)


def _walk(blob: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Each header's name, where its value begins in the blob, and the value's length."""
    at = 0
    while at < len(blob):
        (size,) = _NAME.unpack_from(blob, at)
        at += _NAME.size
        name = blob[at : at + size]
        at += size
        (size,) = _VALUE.unpack_from(blob, at)
        at += _VALUE.size
        yield name, at, size
        at += size


def find_header(blob: bytes, wanted: str) -> tuple[int, int] | None:
    """Where the value of a header begins in the blob, and its length; None if it is not there."""
    name = wanted.encode()
    return next(((at, size) for found, at, size in _walk(blob) if found == name), None)


@lru_cache(8192)  # headers repeat: the route of all replies is the same
def decode_headers(blob: bytes) -> Headers:
    return tuple([(name.decode(), blob[at : at + size]) for name, at, size in _walk(blob)])
