"""`ws://HOST:PORT`: updates and events as rows of bytes (`mercury.binary.v1`)."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from mercury.load.drivers.api import Batch
from mercury.load.drivers.websocket import Link, WebSocketDriver

HEADER = struct.Struct("<2sBBI")  # magic, version, type, count of rows
MAGIC, VERSION = b"Mv", 1
UPDATES, EVENTS, PROGRESS = 1, 2, 3
UPDATE = np.dtype(
    [
        ("handle", "<u4"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("accuracy_dm", "<u2"),
        ("reserved", "<u2"),
        ("time_us", "<i8"),
    ]
)
EVENT = np.dtype(
    [
        ("subscription", "<u4"),
        ("publication", "<u4"),
        ("time_us", "<i8"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("distance_m", "<f4"),
        ("happening", "u1"),
        ("cause", "u1"),
        ("reserved", "<u2"),
    ]
)
TAKEN = np.dtype([("taken", "<u8"), ("dropped", "<u8")])
assert (UPDATE.itemsize, EVENT.itemsize, TAKEN.itemsize) == (24, 32, 16)

_ROWS = {EVENTS: EVENT, PROGRESS: TAKEN}


class BinaryDriver(WebSocketDriver):
    """No Python code runs for a single update or event."""

    SUBPROTOCOL = "mercury.binary.v1"

    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> bytes:
        """One frame."""
        rows = np.zeros(len(batch), UPDATE)
        rows["handle"] = handles
        rows["lat_e7"] = np.rint(batch.lats * 1e7)
        rows["lon_e7"] = np.rint(batch.lons * 1e7)
        rows["accuracy_dm"] = min(round(self._accuracy_m * 10.0), 0xFFFF)
        rows["time_us"] = batch.times_us
        return HEADER.pack(MAGIC, VERSION, UPDATES, len(rows)) + rows.tobytes()

    def take_frame(self, link: Link, frame: bytes | str) -> None:
        """Events, or how far the server is."""
        if isinstance(frame, str):
            return  # declarations were answered before
        found = read_rows(frame)
        if found is None:
            self.tally.note("the server sent frames that are not of mercury.binary.v1")
            return
        kind, rows = found
        if kind == EVENTS:
            self.events_came(rows["happening"], rows["cause"], rows["time_us"])
        else:
            link.taken, link.dropped = int(rows["taken"][-1]), int(rows["dropped"][-1])


def read_rows(frame: bytes) -> tuple[int, NDArray[np.void]] | None:
    """The type and the rows of a server's frame; None if it is none."""
    if len(frame) < HEADER.size:
        return None
    magic, version, kind, count = HEADER.unpack_from(frame)
    row = _ROWS.get(kind)
    if magic != MAGIC or version != VERSION or row is None or not count:
        return None
    if len(frame) != HEADER.size + count * row.itemsize:
        return None
    return kind, np.frombuffer(frame, row, count, HEADER.size)
