"""Collects what lanes have seen, and makes one frame for each bucket of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mercury.matcher.shared.stage import Parcel
from mercury.wire.match_frames import BUCKETS, FrameWriter, Rows, bucket_key, buckets_of
from mercury.wire.origins import Origin, origin_header
from mercury.wire.worker_frames import SIGHTINGS, joined_rows


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
        self, subscriptions: NDArray[np.uint64], what: Iterable[bytes], origins: NDArray[np.int64]
    ) -> None:
        """Say what publications are, each to whom a subscription belongs."""
        buckets = buckets_of(subscriptions).tolist()
        for bucket, one, origin in zip(buckets, what, origins.tolist(), strict=True):
            described = self._described.setdefault(bucket, {})
            described[one] = max(origin, described.get(one, origin))

    def parcels(self, topic: str, stage: int, partition: int) -> list[Parcel]:
        """Everything so far, by bucket and by what it follows from."""
        rows = joined_rows(self._rows, SIGHTINGS)
        described, self._rows, self._described = self._described, [], {}
        buckets = buckets_of(rows["subscription"])
        order = np.lexsort((rows["origin"], buckets))
        rows, buckets = rows[order], buckets[order]
        ends = np.searchsorted(buckets, np.arange(BUCKETS + 1))
        parcels = []
        for bucket in sorted({*buckets.tolist(), *described}):
            some = rows[ends[bucket] : ends[bucket + 1]]
            what = described.get(bucket, {})
            last = max([*some["origin"][-1:].tolist(), *what.values()])
            writer = FrameWriter().segment(b"P", b"".join(what))
            writer.segment(b"G", some.tobytes())
            headers = (origin_header(Origin(stage, partition, last)),)
            parcels.append(Parcel(topic, bucket_key(bucket), writer.to_bytes(), headers))
        return parcels
