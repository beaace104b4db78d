"""Collects what lanes have seen, and makes one frame for each bucket of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mercury.matcher.shared.stage import Parcel
from mercury.wire.moving import FrameWriter, Rows, bucket_key, buckets_of
from mercury.wire.origins import Origin, origin_header
from mercury.wire.passing import SIGHTINGS


class SightingFrames:
    """Sightings on their way to who tells of them."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[Rows] = []
        self._described: dict[int, dict[bytes, int]] = {}  # by bucket: what, and its origin

    def add(self, rows: Rows) -> None:
        self._rows.append(rows)
        self.count += len(rows)

    def describe(
        self, subscriptions: NDArray[np.uint64], what: Iterable[bytes], origin: int
    ) -> None:
        """Say what publications are, each to whom a subscription belongs."""
        for bucket, one in zip(buckets_of(subscriptions).tolist(), what, strict=True):
            self._described.setdefault(bucket, {})[one] = origin

    def parcels(self, topic: str, stage: int, partition: int) -> list[Parcel]:
        """Everything so far."""
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, SIGHTINGS)
        described, self._rows, self._described = self._described, [], {}
        buckets = buckets_of(rows["subscription"])
        parcels = []
        for bucket in sorted({*np.unique(buckets).tolist(), *described}):
            some = rows[buckets == bucket]
            what = described.get(bucket, {})
            last = max([*some["origin"][-1:].tolist(), *what.values()])
            writer = FrameWriter().segment(b"P", b"".join(what))
            writer.segment(b"G", some.tobytes())
            headers = (origin_header(Origin(stage, partition, last)),)
            parcels.append(Parcel(topic, bucket_key(bucket), writer.to_bytes(), headers))
        return parcels
