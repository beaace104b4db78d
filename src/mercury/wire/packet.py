"""The UDP packet: a fixed 32-byte header and an encoded Envelope.

    magic "Hg" | version | kind | priority | flags | body length | session token | sequence
        2      |    1    |  1   |    1     |   1   |      2      |      16       |    8       bytes

All numbers are big-endian. The header holds what differs per recipient, so one body serves a whole
fan-out, and it can be read without parsing the body. The body length exposes truncation, which
Protocol Buffers alone would often not notice.
"""

from __future__ import annotations

import struct

import numpy as np

from mercury.model.errors import MessageTooLargeError, PacketError
from mercury.model.message import MAX_PACKET_BYTES, VERSION, Kind

MAGIC = b"Hg"
HEADER_BYTES = 32
TOKEN_BYTES = 16
MAX_PRIORITY = 9
MAX_BODY_BYTES = MAX_PACKET_BYTES - HEADER_BYTES
NO_TOKEN = bytes(TOKEN_BYTES)

# Flags of the header.
WANTS_RECEIPT = 1
CARRIES_RECEIPTS = 2

FLAGS_AT = 5

_HEADER = struct.Struct(">2sBBBBH16sQ")
assert _HEADER.size == HEADER_BYTES

# The same header as a NumPy record, to write the headers of a fan-out in one go.
HEADER_DTYPE = np.dtype(
    [
        ("magic", "S2"),
        ("version", "u1"),
        ("kind", "u1"),
        ("priority", "u1"),
        ("flags", "u1"),
        ("length", ">u2"),
        ("token", "V16"),
        ("sequence", ">u8"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_BYTES

KNOWN_KINDS = frozenset(int(kind) for kind in Kind)


def pack(
    kind: int, priority: int, token: bytes, sequence: int, body: bytes, flags: int = 0
) -> bytes:
    if len(body) > MAX_BODY_BYTES:
        raise MessageTooLargeError(len(body), MAX_BODY_BYTES)
    return _HEADER.pack(MAGIC, VERSION, kind, priority, flags, len(body), token, sequence) + body


def wants_receipt(data: bytes) -> bool:
    """Whether the sender of a packet, whose header was read, asks for a receipt."""
    return bool(data[FLAGS_AT] & WANTS_RECEIPT)


def read_header(data: bytes) -> tuple[int, int, bytes, int]:
    """Check and read the header: kind, priority, token, sequence; the body is what follows.

    Raises PacketError with the reason under which the packet is to be counted.
    """
    size = len(data)
    if size < HEADER_BYTES:
        raise PacketError("truncated" if data[:2] == MAGIC else "not-mercury")
    magic, version, kind, priority, _flags, length, token, sequence = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PacketError("not-mercury")
    if version != VERSION:
        raise PacketError("version")
    if length != size - HEADER_BYTES:
        raise PacketError("truncated" if length > size - HEADER_BYTES else "oversized")
    if kind not in KNOWN_KINDS:
        raise PacketError("unknown-kind")
    if priority > MAX_PRIORITY:
        raise PacketError("malformed")
    return kind, priority, token, sequence


def headers(
    kind: int,
    priority: int,
    body_length: int,
    tokens: np.ndarray,
    sequences: np.ndarray,
    flags: int = 0,
) -> np.ndarray:
    """Return the headers of one body for many recipients, as an array of HEADER_DTYPE.

    `tokens` is an (n, 16) array of bytes, `sequences` has n numbers.
    """
    if body_length > MAX_BODY_BYTES:
        raise MessageTooLargeError(body_length, MAX_BODY_BYTES)
    result = np.empty(len(tokens), dtype=HEADER_DTYPE)
    result["magic"] = MAGIC
    result["version"] = VERSION
    result["kind"] = kind
    result["priority"] = priority
    result["flags"] = flags
    result["length"] = body_length
    result["token"] = np.ascontiguousarray(tokens).view("V16").reshape(-1)
    result["sequence"] = sequences
    return result
