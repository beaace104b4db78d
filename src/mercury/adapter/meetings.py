"""What matchers found, on its way to the clients that want to know."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mercury.adapter.deliveries import Deliveries
from mercury.adapter.entities import NONE
from mercury.adapter.moving import MovingClients
from mercury.bus import Record
from mercury.model.errors import PacketError
from mercury.model.identity import new_id
from mercury.model.message import VERSION, Address, Priority
from mercury.model.moving import Cause, Happening, Match
from mercury.service import now, now_us
from mercury.session import Session, SessionTable
from mercury.wire import MAX_BODY_BYTES
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import Refusal
from mercury.wire.matches import MatchesWriter, Told
from mercury.wire.moving import EVENTS, Rows, rows_of, split_frame
from mercury.wire.origins import SeenOrigins
from mercury.wire.values import values_from_pb

TOPIC = "near"  # what matches are called among messages
TOLD_PRIORITY = Priority.NORMAL
INSIDE_PRIORITY = 2
# A change that was not answered by then is not worth repeating: its subscriber begins anew.
HOLDS_US = 30_000_000
# One datagram: of a packet that is cut into many, the loss of any is the loss of all.
_PACKET_BYTES = 1100
_LONG_QUEUE = 32  # packets of a client that wait for an answer: it has no time for details
_DESCRIPTIONS = 65_536
_MAX_DESCRIPTION_BYTES = MAX_BODY_BYTES // 2
_INSIDE = np.uint8(Happening.INSIDE)
_COLUMNS = ("happening", "cause", "time_us", "lat_e7", "lon_e7", "distance_m")
_HAPPENINGS = (int(min(Happening)), int(max(Happening)))
_CAUSES = (int(min(Cause)), int(max(Cause)))

_Row = tuple[int, int, Told]  # row of the subscription, key of the publication
_Parsed = TypeVar("_Parsed", pb.Descriptions, pb.RefusedDeclarations)


class Meetings:
    """Tells each client what happened to its subscriptions, many things in one packet.

    What comes and goes is sent until the client has it, and numbered, so that the client can put
    it in order; what is still inside is sent once, and not at all to who lags behind.
    """

    def __init__(
        self,
        adapter: Address,
        moving: MovingClients,
        table: SessionTable,
        deliveries: Deliveries,
        send: Callable[[Session, pb.Envelope, bool], None],
        counters: Counter[str],
        dropped: Counter[str],
    ) -> None:
        self._adapter = adapter
        self._moving = moving
        self._entities = moving.entities
        self._table = table
        self._deliveries = deliveries
        self._send = send
        self._counters = counters
        self._dropped = dropped
        # What publications are that our clients have met, by key; those met last at the end.
        self._known: OrderedDict[int, pb.MovingPublication] = OrderedDict()
        self._seen = SeenOrigins()

    def take(self, records: Iterable[Record]) -> None:
        """Tell what is in these records; what is damaged is counted."""
        for record in records:
            # A matcher that took over from another says again what that one had said.
            if not self._seen.is_new(record.headers, record.key):
                self._dropped["bus-repeated"] += 1
                continue
            try:
                self._take(record.value)
            except PacketError as error:
                self._dropped[f"bus-{error.reason}"] += 1

    def _take(self, frame: bytes) -> None:
        # What stands before the events of a record is about them, so each is looked at by itself.
        segments = split_frame(frame)
        events = [rows_of(data, EVENTS) for letter, data in segments if letter == b"E"]
        found = np.concatenate(events) if len(events) > 1 else events[0] if events else None
        if found is not None:
            found, rows = self._ours(found)
        for letter, data in segments:
            if letter == b"P":
                self._learn(data, () if found is None else found["publication"].tolist())
            elif letter == b"R":
                self._refuse(data)
        if found is not None and len(found):
            self._tell(found, rows)

    def _ours(self, events: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """The events of our clients' subscriptions, with the rows of these."""
        rows = self._entities.find(events["subscription"])
        ours = rows != NONE
        ours &= (events["happening"] >= _HAPPENINGS[0]) & (events["happening"] <= _HAPPENINGS[1])
        ours &= (events["cause"] >= _CAUSES[0]) & (events["cause"] <= _CAUSES[1])
        events, rows = events[ours], rows[ours]
        if not len(events):
            return events, rows
        # Nobody is told of what it publishes itself.
        publications = self._entities.find(events["publication"])
        own = (publications != NONE) & (
            self._entities.slot[publications] == self._entities.slot[rows]
        )
        return events[~own], rows[~own]

    def _learn(self, data: memoryview, met: Iterable[int]) -> None:
        wanted = set(met)
        if not wanted and not self._known:
            return
        for one in _parse(pb.Descriptions(), data).description:
            if one.key not in wanted and one.key not in self._known:
                continue
            if one.publication.ByteSize() > _MAX_DESCRIPTION_BYTES:
                self._dropped["bus-oversized"] += 1
                continue
            self._known[one.key] = one.publication
        while len(self._known) > _DESCRIPTIONS:
            self._known.popitem(last=False)

    def _refuse(self, data: memoryview) -> None:
        for one in _parse(pb.RefusedDeclarations(), data).refused:
            self._moving.refused(Refusal(one.key, one.reason, one.sentence))

    def _tell(self, events: Rows, rows: NDArray[np.int64]) -> None:
        keys = events["publication"].tolist()
        described = np.fromiter((key in self._known for key in keys), bool, len(keys))
        if not described.all():
            self._dropped["undescribed"] += int((~described).sum())
            events, rows = events[described], rows[described]
        for key in events["publication"].tolist():
            self._known.move_to_end(key)
        if len(self._moving.questions):
            asked = np.fromiter(
                (self._moving.questions.at(row) is not None for row in rows.tolist()),
                bool,
                len(rows),
            )
            self._tell_questions(events[asked], rows[asked])
            events, rows = events[~asked], rows[~asked]
        if not len(events):
            return
        inside = events["happening"] == _INSIDE
        numbers = self._number(~inside, rows)
        self._counters["matches"] += len(events)
        slots = self._entities.slot[rows]
        # What matters to anybody goes before what is still inside; each client's in order.
        order = np.lexsort((slots, inside))
        slots, inside = slots[order], inside[order]
        columns = (events[name][order].tolist() for name in _COLUMNS)
        told: list[Told] = list(zip(numbers[order].tolist(), *columns, strict=True))
        keys = events["publication"][order].tolist()
        table = list(zip(rows[order].tolist(), keys, told, strict=True))
        starts = np.flatnonzero(np.diff(slots * 2 + inside, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
            session = self._table.at(int(slots[start]))
            if session is not None:
                self._tell_client(session, table[start:end], matters=not inside[start])

    def _number(self, matters: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The number of each event in what its subscription is told."""
        order = np.argsort(rows, kind="stable")
        ranked = rows[order]
        counted = np.cumsum(matters[order])
        starts = np.flatnonzero(np.diff(ranked, prepend=-1))
        before = np.concatenate([[0], counted])[starts]
        sizes = np.diff(np.append(starts, len(rows)))
        numbers = np.empty(len(rows), np.uint32)
        numbers[order] = self._entities.told[ranked] + counted - np.repeat(before, sizes)
        ends = np.append(starts[1:], len(rows)) - 1
        self._entities.told[ranked[ends]] = numbers[order[ends]]
        return numbers

    def _tell_client(self, session: Session, table: list[_Row], *, matters: bool) -> None:
        if not matters:
            peer = self._table.peer[session.slot]
            if self._deliveries.outgoing.peers.waiting[peer] > _LONG_QUEUE:
                self._dropped["shed-inside"] += len(table)
                return
        priority = TOLD_PRIORITY if matters else INSIDE_PRIORITY
        writer = MatchesWriter(_PACKET_BYTES)
        for row, key, told in table:
            entity = self._entities.at(row)
            wish, publication = (entity.id, entity.life), self._known[key]
            if not writer.add(wish, publication, told):
                self._post(session, writer.finish(), priority, surely=matters)
                writer = MatchesWriter(_PACKET_BYTES)
                writer.add(wish, publication, told)
        self._post(session, writer.finish(), priority, surely=matters)

    def _post(self, session: Session, matches: pb.Matches, priority: int, *, surely: bool) -> None:
        time_us = now_us()
        envelope = pb.Envelope(
            version=VERSION,
            id=new_id(time_us),
            kind=pb.CONTENT,
            topic=TOPIC,
            priority=priority,
            sent_us=time_us,
            matches=matches,
        )
        envelope.source.adapter = self._adapter.name
        envelope.destination.client = session.identity
        if surely:
            envelope.policy = pb.CRITICAL
            envelope.expires_us = time_us + HOLDS_US
        self._counters["match_packets"] += 1
        self._send(session, envelope, surely)

    def _tell_questions(self, events: Rows, rows: NDArray[np.int64]) -> None:
        time = now()
        for row, event in zip(rows.tolist(), events, strict=True):
            asked = self._moving.questions.at(row)
            publication = self._known[int(event["publication"])]
            assert asked is not None
            match = Match(
                Happening(event["happening"]),
                Cause(event["cause"]),
                "",
                publication.id,
                publication.topic,
                values_from_pb(publication.values),
                event["lat_e7"] / 1e7,
                event["lon_e7"] / 1e7,
                float(event["distance_m"]),
                int(event["time_us"]),
            )
            self._moving.questions.tell(asked, match, publication.ByteSize(), time)


def _parse(message: _Parsed, data: memoryview) -> _Parsed:
    try:
        message.ParseFromString(bytes(data))
    except DecodeError:
        raise PacketError("malformed") from None
    return message
