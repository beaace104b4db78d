"""`ws://HOST:PORT`: updates and events as rows of bytes (`mercury.binary.v1`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mercury.load.drivers.api import Batch
from mercury.load.drivers.websocket import Link, WebSocketDriver
from mercury.model.errors import PacketError
from mercury.wire.gateway_frames import MOVE_ROW, FrameType, pack_moves, read_server_frame
from mercury.wire.match_frames import to_e7


class BinaryDriver(WebSocketDriver):
    """No Python code runs for a single update or event."""

    SUBPROTOCOL = "mercury.binary.v1"

    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> bytes:
        """One frame."""
        rows = np.zeros(len(batch), MOVE_ROW)
        rows["handle"] = handles
        rows["lat_e7"] = to_e7(batch.lats)
        rows["lon_e7"] = to_e7(batch.lons)
        rows["accuracy_dm"] = min(round(self._accuracy_m * 10.0), 0xFFFF)
        rows["time_us"] = batch.times_us
        return pack_moves(rows)

    def take_frame(self, link: Link, frame: bytes | str) -> None:
        """Events, or how far the server is."""
        if isinstance(frame, str):
            return  # declarations were answered before
        try:
            kind, rows = read_server_frame(frame)
        except PacketError:
            self.tally.note("the server sent frames that are not of mercury.binary.v1")
            return
        if kind == FrameType.EVENTS:
            self.events_came(rows["event_type"], rows["reason"], rows["time_us"])
        else:
            link.taken, link.dropped = int(rows["taken"][-1]), int(rows["dropped"][-1])
