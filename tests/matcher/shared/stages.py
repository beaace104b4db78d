"""The stages of many workers, wired together without a bus; who works next is drawn by seed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from wire.frames import Described, Happened, Refused, read_frame

from mercury.bus import Record
from mercury.matcher.shared.lanes import Lanes
from mercury.matcher.shared.meetings import Meetings
from mercury.matcher.shared.roster import Roster
from mercury.matcher.shared.stage import Parcel
from mercury.matching import MatchingRules
from mercury.model import topics
from mercury.model.matching import EventType, NearSubscription, Publication, Side, entity_key
from mercury.wire.match_frames import MOVES, WITHDRAWALS, FrameWriter, bucket_key, buckets_of, to_e7
from mercury.wire.origins import SeenOrigins
from mercury.wire.worker_frames import time_frame

PARTITIONS = 4


class Told(NamedTuple):
    event_type: EventType
    subscription: int
    publication: int
    time_us: int


class Unit:
    """One partition of a stage, with its last state."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.stage = make()
        self.done = 0  # records
        self.state: tuple[int, bytes] | None = None

    def save(self) -> None:
        self.state = (self.done, self.stage.snapshot())

    def die(self) -> None:
        """Begin anew with what was saved."""
        self.stage = self.make()
        self.done = 0
        if self.state is not None:
            self.done, data = self.state
            self.stage.restore(data)


class Works:
    """All stages, their topics as lists, and what subscribers were told in the end."""

    def __init__(
        self, seed: int, rules: MatchingRules, tile_m: float = 2000.0, split_above: int = 10**9
    ) -> None:
        self.random = random.Random(seed)
        self.logs: dict[tuple[str, int], list[Record]] = {}
        self.units: dict[tuple[str, int], Unit] = {}
        makes: dict[str, Callable[[int], Any]] = {
            topics.ENTITIES: lambda part: Roster(part, rules, tile_m, split_above),
            topics.TILES: lambda part: Lanes(part, rules),
            topics.SIGHTINGS: Meetings,
        }
        for topic, make in makes.items():
            for part in range(PARTITIONS):
                self.units[topic, part] = Unit(lambda make=make, part=part: make(part))
        self.told: list[Told] = []
        self.described: dict[int, Publication] = {}
        self.refused: list[Any] = []
        self._seen = SeenOrigins()
        self._offset = 0
        self.now_us = 1_000_000

    # What clients say

    def declare(self, what: Publication | NearSubscription, time_us: int) -> int:
        side: Side = "publication" if isinstance(what, Publication) else "subscription"
        key = entity_key(side, what.id)
        self._say(key, FrameWriter().declare([(what, time_us)]))
        return key

    def move(self, moves: list[tuple[int, float, float, int]]) -> None:
        rows = np.zeros(len(moves), MOVES)
        rows["key"] = [move[0] for move in moves]
        rows["lat_e7"], rows["lon_e7"] = (
            to_e7([move[1] for move in moves]), to_e7([move[2] for move in moves]),
        )  # fmt: skip
        rows["time_us"] = [move[3] for move in moves]
        buckets = buckets_of(rows["key"])
        for bucket in np.unique(buckets).tolist():
            frame = FrameWriter().move(rows[buckets == bucket]).to_bytes()
            self.append(Parcel(topics.ENTITIES, bucket_key(bucket), frame))

    def withdraw(self, key: int, time_us: int) -> None:
        rows = np.array([(key, time_us)], WITHDRAWALS)
        self._say(key, FrameWriter().withdraw(rows))

    def tell_time(self, time_us: int) -> None:
        for topic, part in self.units:
            log = self.logs.get((topic, part))
            if log:
                self._put(topic, part, Parcel(topic, log[-1].key, time_frame(time_us)))

    def _say(self, key: int, writer: FrameWriter) -> None:
        parcel = Parcel(topics.ENTITIES, bucket_key(int(buckets_of(key))), writer.to_bytes())
        self.append(parcel)

    # What workers do

    def append(self, parcel: Parcel) -> None:
        if parcel.topic == topics.MATCHES:
            self._hear(parcel)
            return
        self._put(parcel.topic, zlib.crc32(parcel.key) % PARTITIONS, parcel)

    def _put(self, topic: str, part: int, parcel: Parcel) -> None:
        self._offset += 1
        record = Record(
            topic, part, self._offset, self.now_us, parcel.key, parcel.headers, parcel.value
        )
        self.logs.setdefault((topic, part), []).append(record)

    def work(self, *, killing: float = 0.0) -> None:
        """Let the stages work, in any order, until nothing is left to do."""
        while True:
            open_ones = [
                place for place, log in self.logs.items() if self.units[place].done < len(log)
            ]
            if not open_ones:
                return
            self._work_at(self.random.choice(open_ones), killing)

    def work_a_little(self, turns: int, killing: float = 0.0) -> None:
        for _ in range(turns):
            open_ones = [
                place for place, log in self.logs.items() if self.units[place].done < len(log)
            ]
            if open_ones:
                self._work_at(self.random.choice(open_ones), killing)

    def _work_at(self, place: tuple[str, int], killing: float) -> None:
        unit, log = self.units[place], self.logs[place]
        count = self.random.randint(1, 8)
        some = log[unit.done : unit.done + count]
        parcels = unit.stage.process(some)
        if self.random.random() < killing:
            # Some of what follows is out, at each key the first of it; the rest is lost.
            cut = self.random.randint(0, len(parcels))
            for parcel in parcels[:cut]:
                self.append(parcel)
            unit.die()
            return
        for parcel in parcels:
            self.append(parcel)
        unit.done += len(some)
        if self.random.random() < 0.1:
            unit.save()

    def _hear(self, parcel: Parcel) -> None:
        if not self._seen.is_new(parcel.headers, parcel.key):
            return
        for segment in read_frame(parcel.value):
            match segment:
                case Described(publications):
                    self.described |= publications
                case Happened(rows):
                    for row in rows:
                        self.told.append(
                            Told(
                                EventType(int(row["event_type"])),
                                int(row["subscription"]),
                                int(row["publication"]),
                                int(row["time_us"]),
                            )
                        )
                case Refused(refusals):
                    self.refused += refusals

    # What came of it

    def inside(self) -> set[tuple[int, int]]:
        """Who is inside by what was told; enters and exits must alternate."""
        inside: set[tuple[int, int]] = set()
        for event_type, subscription, publication, _ in self.told:
            couple = (subscription, publication)
            if event_type == EventType.ENTER:
                assert couple not in inside, "entered twice"
                inside.add(couple)
            elif event_type == EventType.EXIT:
                assert couple in inside, "left without having entered"
                inside.remove(couple)
            else:
                assert couple in inside, "told of though not inside"
        return inside

    def dropped(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for unit in self.units.values():
            for reason, count in unit.stage.dropped.items():
                found[reason] = found.get(reason, 0) + count
        return found
