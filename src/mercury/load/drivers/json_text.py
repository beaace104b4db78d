"""`ws+json://HOST:PORT`: the same gateway with JSON alone, as a small program would use it."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from mercury.load.drivers.api import Batch
from mercury.load.drivers.websocket import Link, WebSocketDriver, objects_of
from mercury.model.matching import EventReason, EventType

_EVENT_TYPES = {what.name.lower(): int(what) for what in EventType}
_REASONS = {reason.name.lower(): int(reason) for reason in EventReason}


class JsonDriver(WebSocketDriver):
    """The updates of a moment are one list, which the server answers by one list."""

    SUBPROTOCOL = "mercury.json.v1"

    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> str:
        """One list of moves."""
        rows = zip(
            handles.tolist(),
            np.round(batch.lats, 7).tolist(),
            np.round(batch.lons, 7).tolist(),
            batch.times_us.tolist(),
            strict=True,
        )
        moves = [
            {
                "op": "move",
                "handle": handle,
                "lat": lat,
                "lon": lon,
                "accuracy_m": self._accuracy_m,
                "time_us": time_us,
            }
            for handle, lat, lon, time_us in rows
        ]
        return json.dumps(moves, separators=(",", ":"))

    def take_frame(self, link: Link, frame: bytes | str) -> None:
        """Answers and events."""
        if not isinstance(frame, str):
            return
        events = []
        for one in objects_of(frame):
            if "event" in one:
                events.append(
                    (
                        _EVENT_TYPES.get(one["event"], 0),
                        _REASONS.get(one.get("reason", ""), 0),
                        one.get("time_us", 0),
                    )
                )
            elif "error" in one:
                link.dropped += 1
                self.tally.note(f"the server refused updates, such as: {one['error']}")
            elif "ok" in one:
                link.taken += 1
        if events:
            event_types, reasons, times_us = zip(*events, strict=True)
            self.events_came(
                np.array(event_types, np.uint8),
                np.array(reasons, np.uint8),
                np.array(times_us, np.int64),
            )
