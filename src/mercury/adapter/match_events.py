"""Passes the match events of the matchers on to the clients that subscribed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mercury.adapter.entities import NONE
from mercury.adapter.moving_clients import MovingClients
from mercury.model.errors import PacketError
from mercury.model.identity import new_id
from mercury.model.instant import Instant
from mercury.model.matching import EventReason, EventType, Match
from mercury.model.message import VERSION, Priority
from mercury.session import Session
from mercury.wire import MAX_BODY_BYTES
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import MatchesWriter, MatchRow, Refusal
from mercury.wire.fields import values_from_pb
from mercury.wire.match_frames import EVENTS, Rows, parse_segment, rows_of, split_frame
from mercury.wire.origins import SeenOrigins
from mercury.wire.records import Headers

TOPIC = "near"  # what matches are called among messages
MATCH_PRIORITY = Priority.NORMAL
INSIDE_PRIORITY = 2
# A change not acknowledged within this time is not repeated: its subscription starts anew.
HOLDS_US = 30_000_000
# One datagram: of a packet that is cut into many, the loss of any is the loss of all.
_PACKET_BYTES = 1100
_LONG_QUEUE = 32  # unacknowledged packets of a client, above which `inside` is not sent
MAX_DESCRIPTIONS = 65_536
_MAX_DESCRIPTION_BYTES = MAX_BODY_BYTES // 2
_INSIDE = np.uint8(EventType.INSIDE)
_NO_EVENTS = np.empty(0, EVENTS)
_COLUMNS = ("event_type", "reason", "time_us", "lat_e7", "lon_e7", "distance_m")
_EVENT_TYPES = (int(min(EventType)), int(max(EventType)))
_REASONS = (int(min(EventReason)), int(max(EventReason)))

_Row = tuple[int, int, MatchRow]  # row of the subscription, key of the publication


class MatchEvents:
    """Notifies each client of the events of its subscriptions, many in one packet.

    Enters and exits are numbered and sent until the client has them, so that it can put them in
    order; `inside` is sent once, and not at all to a client that lags behind.
    """

    def __init__(self, moving: MovingClients) -> None:
        self._moving = moving
        self._entities = moving.entities
        self._table = moving.table
        self._mediator = moving.mediator
        self._counters = moving.counters
        self._dropped = moving.dropped
        # Descriptions of publications that our clients have met, by key; the newest last.
        self._known: OrderedDict[int, pb.MovingPublication] = OrderedDict()
        self._seen = SeenOrigins()

    def __len__(self) -> int:
        """The number of descriptions of publications that are kept."""
        return len(self._known)

    def take(self, value: bytes, key: bytes, headers: Headers, now: Instant) -> None:
        """Pass on the events in a record; damaged ones are counted."""
        # A matcher that took over from another repeats some of its events.
        if not self._seen.is_new(headers, key):
            self._dropped["bus-repeated"] += 1
            return
        try:
            self._take(value, now)
        except PacketError as error:
            self._dropped[f"bus-{error.reason}"] += 1

    def _take(self, frame: bytes, now: Instant) -> None:
        # Descriptions precede the events of the same record, so records are read one by one.
        segments = split_frame(frame)
        events = [rows_of(data, EVENTS) for letter, data in segments if letter == b"E"]
        found, rows = self._ours(np.concatenate([_NO_EVENTS, *events]))
        for letter, data in segments:
            if letter == b"P":
                self._learn(data, found["publication"].tolist())
            elif letter == b"R":
                for one in parse_segment(pb.RefusedDeclarations, data).refused:
                    self._moving.refused(Refusal(one.key, one.reason, one.sentence), now)
        if len(found):
            self._notify(found, rows, now)

    def _ours(self, events: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """The events of our clients' subscriptions, with the rows of these."""
        rows = self._entities.find(events["subscription"])
        ours = rows != NONE
        ours &= (events["event_type"] >= _EVENT_TYPES[0]) & (
            events["event_type"] <= _EVENT_TYPES[1]
        )
        ours &= (events["reason"] >= _REASONS[0]) & (events["reason"] <= _REASONS[1])
        events, rows = events[ours], rows[ours]
        if not len(events):
            return events, rows
        # A client is not notified of its own publications.
        publications = self._entities.find(events["publication"])
        own = (publications != NONE) & (
            self._entities.slot[publications] == self._entities.slot[rows]
        )
        return events[~own], rows[~own]

    def _learn(self, data: memoryview, met: Iterable[int]) -> None:
        wanted = set(met)
        if not wanted and not self._known:
            return
        for one in parse_segment(pb.Descriptions, data).description:
            if one.key not in wanted and one.key not in self._known:
                continue
            if one.publication.ByteSize() > _MAX_DESCRIPTION_BYTES:
                self._dropped["bus-oversized"] += 1
                continue
            self._known[one.key] = one.publication
        while len(self._known) > MAX_DESCRIPTIONS:
            self._known.popitem(last=False)

    def _notify(self, events: Rows, rows: NDArray[np.int64], now: Instant) -> None:
        keys = events["publication"].tolist()
        described = np.fromiter((key in self._known for key in keys), bool, len(keys))
        if not described.all():
            self._dropped["undescribed"] += int((~described).sum())
            events, rows = events[described], rows[described]
        for key in events["publication"].tolist():
            self._known.move_to_end(key)
        queries = self._moving.queries.by_row
        if queries:
            asked = np.fromiter((row in queries for row in rows.tolist()), bool, len(rows))
            self._answer_queries(events[asked], rows[asked], now.s)
            events, rows = events[~asked], rows[~asked]
        if not len(events):
            return
        inside = events["event_type"] == _INSIDE
        numbers = self._number(~inside, rows)
        self._counters["matches"] += len(events)
        slots = self._entities.slot[rows]
        # Enters and exits go before `inside`; each client's stay in order.
        order = np.lexsort((slots, inside))
        slots, inside = slots[order], inside[order]
        columns = (events[name][order].tolist() for name in _COLUMNS)
        match_row: list[MatchRow] = list(zip(numbers[order].tolist(), *columns, strict=True))
        keys = events["publication"][order].tolist()
        table = list(zip(rows[order].tolist(), keys, match_row, strict=True))
        starts = np.flatnonzero(np.diff(slots * 2 + inside, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
            session = self._table.at(int(slots[start]))
            if session is not None:
                matters = not inside[start]
                for matches in self._packets(session, table[start:end], matters=matters):
                    self._send(session, matches, now, reliably=matters)

    def _number(self, matters: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The number of each event among those of its subscription."""
        order = np.argsort(rows, kind="stable")
        ranked = rows[order]
        counted = np.cumsum(matters[order])
        starts = np.flatnonzero(np.diff(ranked, prepend=-1))
        before = np.concatenate([[0], counted])[starts]
        sizes = np.diff(np.append(starts, len(rows)))
        numbers = np.empty(len(rows), np.uint32)
        numbers[order] = self._entities.last_number[ranked] + counted - np.repeat(before, sizes)
        ends = np.append(starts[1:], len(rows)) - 1
        self._entities.last_number[ranked[ends]] = numbers[order[ends]]
        return numbers

    def _packets(
        self, session: Session, table: list[_Row], *, matters: bool
    ) -> Iterator[pb.Matches]:
        if not matters:
            peer = self._table.peer[session.slot]
            if self._mediator.outgoing.peers.waiting[peer] > _LONG_QUEUE:
                self._dropped["shed-inside"] += len(table)
                return
        writer = MatchesWriter(_PACKET_BYTES)
        for row, key, match_row in table:
            entity = self._entities.at(row)
            subscription_index, publication = (entity.id, entity.incarnation), self._known[key]
            if not writer.add(subscription_index, publication, match_row):
                yield writer.finish()
                writer = MatchesWriter(_PACKET_BYTES)
                writer.add(subscription_index, publication, match_row)
        yield writer.finish()

    def _send(self, session: Session, matches: pb.Matches, now: Instant, *, reliably: bool) -> None:
        envelope = pb.Envelope(
            version=VERSION,
            id=new_id(now.us),
            kind=pb.CONTENT,
            topic=TOPIC,
            priority=MATCH_PRIORITY if reliably else INSIDE_PRIORITY,
            sent_us=now.us,
            matches=matches,
        )
        envelope.source.adapter = self._moving.adapter.name
        envelope.destination.client = session.identity
        if reliably:
            envelope.policy = pb.CRITICAL
            envelope.expires_us = now.us + HOLDS_US
        self._counters["match_packets"] += 1
        self._mediator.send(session, envelope, now, reliably=reliably)

    def _answer_queries(self, events: Rows, rows: NDArray[np.int64], now: float) -> None:
        for row, event in zip(rows.tolist(), events, strict=True):
            asked = self._moving.queries.by_row[row]
            publication = self._known[int(event["publication"])]
            match = Match(
                EventType(event["event_type"]),
                EventReason(event["reason"]),
                "",
                publication.id,
                publication.topic,
                values_from_pb(publication.values),
                event["lat_e7"] / 1e7,
                event["lon_e7"] / 1e7,
                float(event["distance_m"]),
                int(event["time_us"]),
            )
            self._moving.queries.feed(asked, match, publication.ByteSize(), now)
