"""The binary frames of the subprotocol `mercury.binary.v1`: rows of arrays, little-endian."""

from __future__ import annotations

import struct
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from mercury.model.errors import PacketError
from mercury.wire.match_frames import EVENT_COLUMNS

VERSION = 1
MAX_ROWS = 65_536
NO_HANDLE = 0xFFFF_FFFF  # of a subscription that is notified in text

MOVE_ROW = np.dtype(
    [
        ("handle", "<u4"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("accuracy_dm", "<u2"),  # 0: unknown
        ("reserved", "<u2"),
        ("time_us", "<i8"),  # 0: when it arrives
    ]
)
EVENT_ROW = np.dtype(
    [
        ("subscription", "<u4"),  # its handle
        ("publication", "<u4"),  # a number of this server
        *EVENT_COLUMNS,
    ]
)
PROGRESS_ROW = np.dtype([("taken", "<u8"), ("dropped", "<u8")])

_HEADER = struct.Struct("<2sBBI")  # magic, version, type, count of rows
_MAGIC = b"Mv"
HEADER_BYTES = _HEADER.size


class FrameType(IntEnum):
    """The type of a frame's rows."""

    MOVES = 1
    EVENTS = 2
    PROGRESS = 3


def read_moves(data: bytes, max_rows: int = MAX_ROWS) -> NDArray[np.void]:
    """The rows of a frame from a client, or PacketError with a sentence."""
    if len(data) < HEADER_BYTES:
        raise PacketError(f"a frame of {len(data)} bytes has no header of {HEADER_BYTES}")
    magic, version, kind, count = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise PacketError("a frame begins with the letters Mv")
    if version != VERSION:
        raise PacketError(f"frames of version {version} are not known here, only of {VERSION}")
    if kind != FrameType.MOVES:
        raise PacketError(f"a client sends frames of type {FrameType.MOVES}, not of type {kind}")
    if count > max_rows:
        raise PacketError(f"a frame of {count} rows, at most {max_rows} are allowed")
    expected = HEADER_BYTES + count * MOVE_ROW.itemsize
    if len(data) != expected:
        raise PacketError(f"a frame of {count} rows has {expected} bytes, not {len(data)}")
    return np.frombuffer(data, MOVE_ROW, offset=HEADER_BYTES)


def rows_within(data: bytes) -> int:
    """The number of whole rows in a frame, by its length."""
    return max(len(data) - HEADER_BYTES, 0) // MOVE_ROW.itemsize


def pack_moves(rows: NDArray[np.void]) -> bytes:
    """A frame of a client."""
    return _HEADER.pack(_MAGIC, VERSION, FrameType.MOVES, len(rows)) + rows.tobytes()


def pack_events(rows: NDArray[np.void]) -> bytes:
    """A frame of a server."""
    return _HEADER.pack(_MAGIC, VERSION, FrameType.EVENTS, len(rows)) + rows.tobytes()


def pack_progress(taken: int, dropped: int) -> bytes:
    """A frame that says how many rows were taken and dropped so far."""
    row = np.array([(taken, dropped)], PROGRESS_ROW)
    return _HEADER.pack(_MAGIC, VERSION, FrameType.PROGRESS, 1) + row.tobytes()


def read_server_frame(data: bytes) -> tuple[FrameType, NDArray[np.void]]:
    """The type and the rows of a server's frame; raises PacketError."""
    if len(data) > HEADER_BYTES:
        magic, version, kind, count = _HEADER.unpack_from(data)
        row = _SERVER_ROWS.get(kind) if (magic, version) == (_MAGIC, VERSION) else None
        if row is not None and len(data) == HEADER_BYTES + count * row.itemsize:
            return FrameType(kind), np.frombuffer(data, row, count, HEADER_BYTES)
    raise PacketError("not a frame of a server of mercury.binary.v1")


_SERVER_ROWS = {FrameType.EVENTS: EVENT_ROW, FrameType.PROGRESS: PROGRESS_ROW}
