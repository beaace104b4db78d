"""What a front hears on `meetings`: rows of its own subscriptions, and what they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from mercury.bus import Record
from mercury.matcher.front_things import NONE, Slots, Things
from mercury.matching import Events
from mercury.model.errors import MatchingError, PacketError
from mercury.model.matching import EventReason, EventType
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import Refusal, publication_from_pb
from mercury.wire.match_frames import EVENTS, Rows, from_e7, rows_of, split_frame
from mercury.wire.origins import SeenOrigins

_ENTER, _EXIT = int(EventType.ENTER), int(EventType.EXIT)
_SEEN = ("lat_e7", "lon_e7", "distance_m")
_EVENT_TYPES = (int(min(EventType)), int(max(EventType)))
_REASONS = (int(min(EventReason)), int(max(EventReason)))


class FrontMeetings:
    """Keeps who is inside; what does not follow from that is late news and left out.

    So `enter` and `exit` of a pair take turns, also where a subscription ended here before the
    matchers had heard of it.
    """

    def __init__(
        self,
        things: Things,
        tell: Callable[[Slots, Events], None],
        refuse: Callable[[Refusal], None],
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._things = things
        self._tell = tell
        self._refuse = refuse
        self._seen = SeenOrigins()

    def take(self, records: Iterable[Record]) -> None:
        """Tell what is in these records; what is damaged is counted."""
        for record in records:
            # A matcher that took over from another says again what that one had said.
            if not self._seen.is_new(record.headers, record.key):
                self.dropped["repeated"] += 1
                continue
            try:
                self._take(record.value)
            except PacketError as error:
                self.dropped[error.reason] += 1

    def _take(self, frame: bytes) -> None:
        segments = split_frame(frame)
        events = [rows_of(data, EVENTS) for letter, data in segments if letter == b"E"]
        ours, slots = self._ours(np.concatenate(events)) if events else (None, None)
        for letter, data in segments:
            if letter == b"P":
                self._learn(data, set() if ours is None else set(ours["publication"].tolist()))
            elif letter == b"R":
                for one in _parse(pb.RefusedDeclarations, data).refused:
                    self._refuse(Refusal(one.key, one.reason, one.sentence))
        if ours is not None and slots is not None and len(ours):
            self._judge(ours, slots)

    def _ours(self, events: Rows) -> tuple[Rows, Slots]:
        slots = self._things.slots_of(events["subscription"])
        ours = slots != NONE
        ours &= (events["event_type"] >= _EVENT_TYPES[0]) & (
            events["event_type"] <= _EVENT_TYPES[1]
        )
        ours &= (events["reason"] >= _REASONS[0]) & (events["reason"] <= _REASONS[1])
        return events[ours], slots[ours]

    def _learn(self, data: memoryview, met: set[int]) -> None:
        things = self._things
        for one in _parse(pb.Descriptions, data).description:
            slot = things.slot_of_key(one.key)
            if slot is None:
                if one.key not in met:
                    continue
                slot = things.take("publication", one.key)
                things.rest(slot)
            try:
                things.describe(slot, publication_from_pb(one.publication))
            except MatchingError:
                self.dropped["malformed"] += 1

    def _judge(self, events: Rows, slots: Slots) -> None:
        """Tell the rows that follow from who is inside by now."""
        things = self._things
        told: list[int] = []
        publications: list[int] = []
        columns = (
            slots.tolist(),
            *(events[name].tolist() for name in ("publication", "event_type", *_SEEN)),
        )
        for row, (slot, key, event_type, lat_e7, lon_e7, distance_m) in enumerate(
            zip(*columns, strict=True)
        ):
            inside = things.inside.get(slot)
            if inside is None:
                continue  # the key of a publication: damaged, or made up
            stay = inside.get(key)
            if event_type == _ENTER:
                if stay is not None:
                    continue
                publication = things.slot_of_key(key)
                if publication is None or publication not in things.known:
                    self.dropped["undescribed"] += 1
                    continue
                things.meet(publication)
            elif stay is None:
                self.dropped["not-inside"] += 1
                continue
            else:
                publication = stay[0]
            if event_type == _EXIT:
                things.part(slot, key)
            else:
                inside[key] = (publication, lat_e7, lon_e7, distance_m)
            told.append(row)
            publications.append(publication)
        if told:
            some = events[told]
            met = np.array(publications, np.int64)
            self._tell(slots[told], events_of(things, some, slots[told], met))


def events_of(things: Things, rows: Rows, subscriptions: Slots, publications: Slots) -> Events:
    """Rows of EVENTS as listeners are told them."""
    return Events(
        event_type=rows["event_type"].copy(),
        reason=rows["reason"].copy(),
        publication=things.ref[publications],
        subscription=things.ref[subscriptions],
        time_us=rows["time_us"].astype(np.int64),
        distance_m=rows["distance_m"].astype(np.float32),
        lat=from_e7(rows["lat_e7"]),
        lon=from_e7(rows["lon_e7"]),
        update=np.zeros(len(rows), np.int64),
    )


def exits_of(things: Things, slot: int, reason: EventReason, time_us: int) -> Events:
    """What parts when a subscription ends here; something must be inside."""
    publications, *seen = zip(*things.inside[slot].values(), strict=True)
    rows = np.zeros(len(publications), EVENTS)
    for name, column in zip(_SEEN, seen, strict=True):
        rows[name] = column
    rows["time_us"], rows["event_type"], rows["reason"] = time_us, EventType.EXIT, reason
    return events_of(
        things, rows, np.full(len(rows), slot, np.int64), np.array(publications, np.int64)
    )


def _parse(kind: Any, data: memoryview) -> Any:
    try:
        return kind.FromString(bytes(data))
    except DecodeError:
        raise PacketError("malformed") from None
