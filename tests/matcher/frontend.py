"""Says over the bus what moves, and hears what is told, as adapters do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from wire.frames import Described, Happened, Refused, read_frame

from mercury.bus import Bus
from mercury.model import topics
from mercury.model.matching import EventType, NearSubscription, Publication, Side, entity_key
from mercury.service.clock import now_us
from mercury.wire.declarations import Refusal
from mercury.wire.match_frames import MOVES, WITHDRAWALS, FrameWriter, bucket_key, buckets_of, to_e7
from mercury.wire.origins import SeenOrigins


class Told(NamedTuple):
    event_type: EventType
    reason: int
    subscription: int
    publication: int
    distance_m: float
    time_us: int


class Frontend:
    """One process's hand on the bus."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.told: list[Told] = []
        self.described: dict[int, Publication] = {}
        self.refused: list[Refusal] = []
        self.heard: Counter[int] = Counter()  # by subscription
        self.again = 0  # records that were told a second time
        self._meetings = bus.subscribe((topics.MATCHES,), start="earliest")
        self._seen = SeenOrigins()

    def declare(
        self, *what: Publication | NearSubscription, time_us: int | None = None
    ) -> list[int]:
        time_us = now_us() if time_us is None else time_us
        keys = [key_of(one) for one in what]
        for bucket in sorted(set(buckets_of(keys).tolist())):
            some = [
                (one, time_us)
                for one, key in zip(what, keys, strict=True)
                if buckets_of(key) == bucket
            ]
            self._append(bucket, FrameWriter().declare(some))
        return keys

    def move(
        self,
        keys: Sequence[int],
        lats: Sequence[float],
        lons: Sequence[float],
        time_us: int | None = None,
    ) -> None:
        rows = np.zeros(len(keys), MOVES)
        rows["key"], rows["lat_e7"], rows["lon_e7"] = keys, to_e7(lats), to_e7(lons)
        rows["time_us"] = now_us() if time_us is None else time_us
        buckets = buckets_of(rows["key"])
        for bucket in np.unique(buckets).tolist():
            self._append(bucket, FrameWriter().move(rows[buckets == bucket]))

    def withdraw(self, key: int, time_us: int | None = None) -> None:
        rows = np.array([(key, now_us() if time_us is None else time_us)], WITHDRAWALS)
        self._append(int(buckets_of(key)), FrameWriter().withdraw(rows))

    def _append(self, bucket: int, writer: FrameWriter) -> None:
        self.bus.append(topics.ENTITIES, writer.to_bytes(), bucket_key(bucket))

    async def listen(self) -> None:
        """Take in what is told, until cancelled."""
        while True:
            for record in await self._meetings.read():
                if not self._seen.is_new(record.headers, record.key):
                    self.again += 1
                    continue
                for segment in read_frame(record.value):
                    match segment:
                        case Described(publications):
                            self.described |= publications
                        case Refused(refusals):
                            self.refused += refusals
                        case Happened(rows):
                            self.heard.update(rows["subscription"].tolist())
                            self.told += [
                                Told(
                                    EventType(int(row["event_type"])), int(row["reason"]),
                                    int(row["subscription"]), int(row["publication"]),
                                    float(row["distance_m"]), int(row["time_us"]),
                                )
                                for row in rows
                            ]  # fmt: skip

    def inside(self) -> set[tuple[int, int]]:
        """Who is inside by what was told; enters and exits must alternate."""
        inside: set[tuple[int, int]] = set()
        for told in self.told:
            couple = (told.subscription, told.publication)
            if told.event_type == EventType.ENTER:
                assert couple not in inside, "entered twice"
                inside.add(couple)
            else:
                assert couple in inside, f"{told.event_type.name} without having entered"
                if told.event_type == EventType.EXIT:
                    inside.remove(couple)
        return inside

    async def __aenter__(self) -> Frontend:
        self._listening = asyncio.create_task(self.listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)


def key_of(what: Publication | NearSubscription) -> int:
    side: Side = "publication" if isinstance(what, Publication) else "subscription"
    return entity_key(side, what.id)
