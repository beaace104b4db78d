"""The third stage: what lanes have seen becomes what subscribers are told.

A publication's stays in lanes follow each other, and what a lane sees of a pair comes in order. So
a sighting of an earlier stay than the last is late news of a lane that the publication has left:
it is dropped. Of the others, whoever is not inside may enter, whoever is inside may leave: enter
and exit of a pair alternate, whatever the order in which lanes are heard. Dwell is counted here,
where a pair lasts over the border of lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np

from mercury.bus import Record
from mercury.matcher.shared.stage import Parcel, StageNumber, State, pack_state
from mercury.model import topics
from mercury.model.errors import PacketError
from mercury.model.matching import EventReason, EventType
from mercury.wire.match_frames import (
    EVENTS,
    FrameWriter,
    Rows,
    bucket_key,
    buckets_of,
    rows_of,
    split_frame,
)
from mercury.wire.origins import Origin, SeenOrigins, origin_header, read_origin
from mercury.wire.worker_frames import NO_DWELL, SIGHTINGS, read_time

_ENTER, _INSIDE, _EXIT = int(EventType.ENTER), int(EventType.INSIDE), int(EventType.EXIT)
REMEMBERED_US = 60_000_000  # pairs that parted, in case late news of them come

PAIRS = np.dtype(
    [
        ("subscription", "<u8"),
        ("publication", "<u8"),
        ("stay", "<i8"),
        ("since_us", "<i8"),  # inside or outside
        ("due_us", "<i8"),  # when it has dwelt; −1: it has, or never will
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("distance_m", "<f4"),
        ("inside", "?"),
    ]
)


class Pair:
    """What is known of a pair."""

    __slots__ = ("distance_m", "due_us", "inside", "lat_e7", "lon_e7", "since_us", "stay")

    def __init__(self, stay: int) -> None:
        self.stay = stay
        self.since_us = 0
        self.due_us = -1
        self.lat_e7 = self.lon_e7 = 0
        self.distance_m = 0.0
        self.inside = False


class Meetings:
    """The pairs of the subscriptions of one partition of `sightings`."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.pairs: dict[tuple[int, int], Pair] = {}
        self.dropped: Counter[str] = Counter()
        self.told = 0
        self._time_us = 0
        self._dwelling: dict[tuple[int, int], Pair] = {}
        self._seen = SeenOrigins()

    def process(self, records: Sequence[Record]) -> list[Parcel]:
        """Take in sightings; what is told of them."""
        parcels: list[Parcel] = []
        for record in records:
            self._time_us = max(self._time_us, record.timestamp_us)
            try:
                parts = dict(split_frame(record.value))
                if b"T" in parts:
                    parcels += self._pass_time(read_time(parts[b"T"]), record.offset)
                    continue
                rows = rows_of(parts.get(b"G", b""), SIGHTINGS)
            except PacketError as error:
                self.dropped[error.reason] += 1
                continue
            origin = read_origin(record.headers)
            last = -1
            if origin is not None:
                last = self._seen.last(origin, record.key)
                if origin.offset <= last:
                    continue
                self._seen.note(origin, record.key)
            events = self._judge(rows[rows["origin"] > last])
            described = bytes(parts.get(b"P", b""))
            if len(events) or described:
                parcels.append(self._parcel(record.key, record.offset, events, described))
        return parcels

    def statistics(self) -> dict[str, float]:
        return {
            "pairs": sum(pair.inside for pair in self.pairs.values()),
            "events": self.told,
        }

    def _judge(self, rows: Rows) -> Rows:
        """The rows that are news, and that somebody has dwelt if that is due before."""
        told: list[int] = []
        entered: list[int] = []  # of those: who was told of as inside, and enters
        dwelt: list[tuple[int, Pair, int, int]] = []  # before which row, and who
        for number, row in enumerate(rows.tolist()):
            (
                _, subscription, publication, stay, time_us, lat_e7, lon_e7, distance_m, dwell_ms,
                event_type, _, _,
            ) = row  # fmt: skip
            couple = (subscription, publication)
            pair = self.pairs.get(couple)
            if pair is None:
                pair = self.pairs[couple] = Pair(stay)
            if stay < pair.stay:
                self.dropped["overtaken"] += 1
                continue
            pair.stay = stay
            if event_type == _INSIDE and not pair.inside:
                # It entered before it came to this lane, of which the news is late.
                event_type = _ENTER
                entered.append(len(told))
            if pair.inside == (event_type == _ENTER):
                continue  # in already, or out already
            if event_type == _ENTER:
                pair.inside, pair.since_us = True, time_us
                pair.due_us = -1
                if dwell_ms != NO_DWELL:
                    pair.due_us = time_us + dwell_ms * 1000
                    self._dwelling[couple] = pair
            elif event_type == _EXIT:
                if 0 <= pair.due_us <= time_us:
                    dwelt.append((len(told), pair, *couple))
                self._dwelling.pop(couple, None)
                pair.inside, pair.since_us = False, self._time_us
            pair.lat_e7, pair.lon_e7, pair.distance_m = lat_e7, lon_e7, distance_m
            told.append(number)
        events = np.zeros(len(told), EVENTS)
        some = rows[told]
        for name in EVENTS.names or ():
            events[name] = some[name]
        events["event_type"][entered] = _ENTER
        for before, pair, subscription, publication in reversed(dwelt):
            events = np.insert(events, before, _dwell(pair, subscription, publication))
        self.told += len(events)
        return events

    def _pass_time(self, time_us: int, offset: int) -> list[Parcel]:
        self._time_us = max(self._time_us, time_us)
        due = [(couple, pair) for couple, pair in self._dwelling.items() if pair.due_us <= time_us]
        by_bucket: dict[int, list[Rows]] = {}
        for couple, pair in sorted(due, key=lambda one: (one[1].due_us, one[0])):
            bucket = int(buckets_of(couple[0]))
            by_bucket.setdefault(bucket, []).append(_dwell(pair, *couple))
            del self._dwelling[couple]
            self.told += 1
        old_us = self._time_us - REMEMBERED_US
        parted = [
            couple
            for couple, pair in self.pairs.items()
            if not pair.inside and pair.since_us <= old_us
        ]
        for couple in parted:
            del self.pairs[couple]
        return [
            self._parcel(bucket_key(bucket), offset, np.concatenate(rows), b"")
            for bucket, rows in sorted(by_bucket.items())
        ]

    def _parcel(self, key: bytes, offset: int, events: Rows, described: bytes) -> Parcel:
        value = FrameWriter().segment(b"P", described).tell(events).to_bytes()
        origin = Origin(StageNumber.MEETINGS, self.partition, offset)
        return Parcel(topics.MATCHES, key, value, (origin_header(origin),))

    # State

    def snapshot(self) -> bytes:
        rows = np.array(
            [
                (
                    *couple, pair.stay, pair.since_us, pair.due_us, pair.lat_e7, pair.lon_e7,
                    pair.distance_m, pair.inside,
                )
                for couple, pair in self.pairs.items()
            ],
            PAIRS,
        )  # fmt: skip
        seen = [(*place[:2], place[2].hex(), place[3]) for place in self._seen.entries()]
        facts = {
            "seen": seen, "time_us": self._time_us, "told": self.told,
            "dwelling": list(self._dwelling),
        }  # fmt: skip
        return pack_state(facts, pairs=rows)

    def restore(self, data: bytes) -> Self:
        """Go on from a snapshot."""
        state = State(data)
        facts = state.facts
        for row in state.array("pairs").tolist():
            pair = self.pairs[row[0], row[1]] = Pair(row[2])
            pair.since_us, pair.due_us, pair.lat_e7, pair.lon_e7 = row[3:7]
            pair.distance_m, pair.inside = row[7:9]
        for subscription, publication in facts["dwelling"]:
            couple = (subscription, publication)
            self._dwelling[couple] = self.pairs[couple]
        self._seen = SeenOrigins(
            (stage, partition, bytes.fromhex(key), offset)
            for stage, partition, key, offset in facts["seen"]
        )
        self._time_us = state.number("time_us")
        self.told = state.number("told")
        return self


def _dwell(pair: Pair, subscription: int, publication: int) -> Rows:
    row = np.zeros(1, EVENTS)
    row["subscription"], row["publication"] = subscription, publication
    row["time_us"], row["distance_m"] = pair.due_us, pair.distance_m
    row["lat_e7"], row["lon_e7"] = pair.lat_e7, pair.lon_e7
    row["event_type"], row["reason"] = EventType.DWELL, EventReason.TIME
    pair.due_us = -1
    return row
