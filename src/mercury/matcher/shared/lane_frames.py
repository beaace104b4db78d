"""Collects what lanes are told, and makes one frame for each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.matcher.shared.routing import lane_key
from mercury.matcher.shared.stage import Parcel
from mercury.model.matching import EventReason
from mercury.wire.match_frames import Rows
from mercury.wire.origins import Origin, origin_header
from mercury.wire.worker_frames import (
    PLACED,
    STEPS,
    SUBSCRIPTION,
    declares,
    joined_rows,
    offset_of,
    steps_frame,
)


class LaneFrames:
    """Steps of entities on their way to lanes, in order."""

    def __init__(self, entities: Rows) -> None:
        self.entities = entities  # rows that steps are made of
        self._lanes: list[NDArray[np.int64]] = []
        self._rows: list[Rows] = []
        self._declared: list[tuple[int, bytes]] = []  # number of the row, what it is
        self._count = 0

    def add(
        self,
        lanes: NDArray[np.int64],
        slots: NDArray[np.int64],
        marks: NDArray[np.int64],
        steps: NDArray[np.int64],
        reason: EventReason,
        *,
        stays: ArrayLike = 0,
        next_stays: ArrayLike = 0,
        to_lanes: ArrayLike = 0,
        declared: Mapping[int, bytes],
    ) -> None:
        """Tell lanes what entities do, one row each."""
        if not len(slots):
            return
        known = self.entities[slots]
        rows = np.zeros(len(slots), STEPS)
        rows["origin"] = offset_of(marks)
        for name in ("key", "time_us", "lat_e7", "lon_e7", "accuracy_m"):
            rows[name] = known[name]
        rows["stay"], rows["next_stay"], rows["to_lane"] = stays, next_stays, to_lanes
        rows["step"], rows["reason"] = steps, reason
        rows["flags"] = np.where(known["kind"] > 1, SUBSCRIPTION, 0)
        rows["flags"] |= np.where(known["placed"], PLACED, 0).astype(np.uint8)
        for row in np.flatnonzero(declares(rows)).tolist():
            self._declared.append((self._count + row, declared[int(slots[row])]))
        self._lanes.append(lanes)
        self._rows.append(rows)
        self._count += len(rows)

    def parcels(self, topic: str, stage: int, partition: int) -> list[Parcel]:
        """Everything so far, a record for each lane."""
        if not self._count:
            return []
        lanes, rows = np.concatenate(self._lanes), joined_rows(self._rows, STEPS)
        order = np.argsort(lanes, kind="stable")
        lanes, rows = lanes[order], rows[order]
        starts = np.flatnonzero(np.diff(lanes, prepend=-1))
        lasts = np.maximum.reduceat(rows["origin"], starts).tolist()
        blobs: dict[int, list[bytes]] = {}  # by lane
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        for number, blob in sorted((int(places[row]), blob) for row, blob in self._declared):
            blobs.setdefault(int(lanes[number]), []).append(blob)
        self._lanes, self._rows, self._declared, self._count = [], [], [], 0
        parcels = []
        ends = [*starts[1:].tolist(), len(lanes)]
        for start, end, last in zip(starts.tolist(), ends, lasts, strict=True):
            lane = int(lanes[start])
            frame = steps_frame(rows[start:end], blobs.get(lane, ()))
            header = origin_header(Origin(stage, partition, last))
            parcels.append(Parcel(topic, lane_key(lane), frame, (header,)))
        return parcels
