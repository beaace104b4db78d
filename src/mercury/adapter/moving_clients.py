"""Passes the declarations and positions of an adapter's clients on to the matchers."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterator
from uuid import UUID

import numpy as np

from mercury.adapter.entities import Entities, Entity
from mercury.adapter.mediator import AdapterMediator
from mercury.adapter.queries import QUERY_MARK, Queries
from mercury.adapter.routing import BusRecord
from mercury.model import topics
from mercury.model.declarations import ASK, DECLARE, WITHDRAW
from mercury.model.errors import AreaError, FilterError, MatchingError, PacketError
from mercury.model.identity import new_id
from mercury.model.instant import Instant
from mercury.model.matching import Side, entity_key
from mercury.model.message import Address, Attributes, Kind, Message, Payload, Priority
from mercury.session import Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire import to_envelope
from mercury.wire.declarations import Refusal, publication_from_pb, refusal, subscription_from_pb
from mercury.wire.match_frames import (
    MOVES,
    WITHDRAWALS,
    FrameWriter,
    Rows,
    bucket_key,
    buckets_of,
    by_bucket,
    rows,
    to_e7,
)

MAX_PER_CLIENT = 64
MAX_DECLARATION_BYTES = 16_384
# A matcher that refuses does so within this time; matchers do not confirm.
ANSWER_AFTER_S = 0.15
MAX_ANSWERS = 20_000  # answers kept for repeated requests, and for how long
_ANSWERED_S = 60.0
# A report that is older than the last one by less than this was overtaken by it. If it is older by
# more, the client has set its clock back.
_OVERTAKEN_US = 2_000_000


class MovingClients:
    """Passes on clients' declarations and positions, many of them in one record.

    `flush` returns these records, at the end of an event-loop iteration. Of one client they are in
    the order: withdrawals, declarations, position. After
    `repeat_after_s`, when a client that came from another adapter is given up there, what it
    declared is repeated once.
    """

    def __init__(
        self,
        adapter: Address,
        mediator: AdapterMediator,
        *,
        repeat_after_s: float,
        max_entities: int = 1_000_000,
    ) -> None:
        self.entities = Entities()
        self.queries = Queries(self.entities)
        self.adapter = adapter
        self.table = mediator.table
        self.mediator = mediator
        self.counters = mediator.counters
        self.dropped = mediator.dropped
        self._reports: list[tuple[int, int, float, float, float]] = []
        self._reported_us: dict[int, int] = {}  # by slot: time of the last report, by its clock
        self._withdrawn: list[tuple[int, int]] = []  # keys and times
        self._declared: dict[int, Entity] = {}  # by key
        # Declarations that have not been answered, by request: whose, and when they are due.
        self._waiting: OrderedDict[bytes, tuple[Session, float]] = OrderedDict()
        # Answers of late, by request, and until when they are kept.
        self._answered: OrderedDict[bytes, tuple[float, pb.Envelope]] = OrderedDict()
        self._requests = {
            DECLARE: ("declaration", self._declare),
            WITHDRAW: ("withdrawal", self._withdraw),
            ASK: ("query", self._ask),
        }
        self._sequence = 0
        self._repeat_after_s = repeat_after_s
        self._max_entities = max_entities
        self._fresh: deque[tuple[float, Entity]] = deque()  # to be declared once more, and when

    @property
    def kept_answers(self) -> int:
        return len(self._answered)

    # From the clients

    def request(self, session: Session, envelope: pb.Envelope, now: Instant) -> None:
        """Take a declaration, a withdrawal or a query; the answer follows later."""
        answered = self._answered.get(envelope.id)
        if answered is not None:
            self.mediator.send(session, answered[1], now)
            return
        if envelope.id in self._waiting or envelope.id in self.queries.by_request:
            return  # repeated before it was answered
        payload, handle = self._requests[envelope.topic]
        if envelope.WhichOneof("payload") != payload:
            raise PacketError("malformed")
        try:
            handle(session, envelope, now)
        except (MatchingError, FilterError, AreaError) as error:
            self._answer(session, envelope.id, _refused(refusal(0, error)), now)

    def report(self, session: Session, telemetry: pb.Telemetry) -> None:
        """A client reported its position; ignored unless an entity follows it."""
        slot = session.slot
        if not self.entities.moves(slot):
            return
        if 0 < self._reported_us.get(slot, 0) - telemetry.time_us < _OVERTAKEN_US:
            self.dropped["overtaken-report"] += 1
            return
        self._reported_us[slot] = telemetry.time_us
        generation = int(self.table.generation[slot])
        lat, lon, accuracy_m = telemetry.lat, telemetry.lon, telemetry.accuracy_m
        self._reports.append((slot, generation, lat, lon, accuracy_m))

    def closed(self, session: Session, heard_us: int) -> None:
        """A client has no session any more: its declarations ended with its last report."""
        for entity in self.entities.of(session):
            self._drop(entity, heard_us)
        self._reported_us.pop(session.slot, None)

    def _declare(self, session: Session, envelope: pb.Envelope, now: Instant) -> None:
        said = envelope.declaration
        side: Side = "publication" if said.HasField("publication") else "subscription"
        what = said.publication if side == "publication" else said.subscription
        id = what.id
        if id.startswith(QUERY_MARK):
            raise MatchingError(f"the name {id!r} begins with {QUERY_MARK}, as queries do", "id")
        what.id = f"{session.identity}/{id}"
        entity = self.entities.get(session, side, id)
        said.key = entity_key(side, what.id) if entity is None else entity.key
        said.time_us = 0
        if entity is None or said != entity.declaration:
            _check(said)
            moves = _moves_with_client(said)
            if entity is None:
                entity = self._add(session, side, id, said.key, moves, now)
            else:
                self.entities.set_moving(entity, moves)
            entity.declaration = said
        entity.request = envelope.id
        self._declared[entity.key] = entity
        self._waiting[envelope.id] = (session, now.s + ANSWER_AFTER_S)
        self.counters["declarations"] += 1

    def _add(
        self, session: Session, side: Side, id: str, key: int, moves: bool, now: Instant
    ) -> Entity:
        if len(self.entities.of(session)) >= MAX_PER_CLIENT:
            raise MatchingError(f"a client declares at most {MAX_PER_CLIENT} things", "count")
        if len(self.entities) >= self._max_entities:
            raise MatchingError(
                f"clients here declare at most {self._max_entities} things", "count"
            )
        if side == "subscription":
            # Perhaps another adapter declared it: only a new subscription learns what is inside.
            self._withdrawn.append((key, now.us))
        entity = self.entities.add(session, side, id, key, now.us, moves=moves)
        self._fresh.append((now.s + self._repeat_after_s, entity))
        return entity

    def _withdraw(self, session: Session, envelope: pb.Envelope, now: Instant) -> None:
        said = envelope.withdrawal
        side: Side = "publication" if said.publication else "subscription"
        entity = self.entities.get(session, side, said.id)
        if entity is not None:
            self._drop(entity, now.us)
        self._answer(session, envelope.id, Attributes({"ok": True}), now)

    def _ask(self, session: Session, envelope: pb.Envelope, now: Instant) -> None:
        entity = self.queries.ask(session, envelope.id, envelope.query, now.s)
        self._declared[entity.key] = entity
        self.counters["queries"] += 1

    def _drop(self, entity: Entity, time_us: int) -> None:
        self._declared.pop(entity.key, None)
        self._withdrawn.append((entity.key, time_us))
        self.queries.pop(entity)
        self.entities.remove(entity)

    # To the matchers

    def flush(self, now_us: int) -> tuple[list[BusRecord], list[Entity]]:
        """What came since the last call as records for the bus, and the entities they declare.

        They are `rejected` if the bus does not take it.
        """
        if not (self._reports or self._declared or self._withdrawn):
            return [], []
        declared, self._declared = list(self._declared.values()), {}
        withdrawn = np.array(self._withdrawn, WITHDRAWALS)
        self._withdrawn = []
        # One time for all: a position older than its declaration would be ignored.
        moves = self._moves(declared, now_us)
        self.counters["moves"] += len(moves)
        return list(self._records(withdrawn, declared, moves, now_us)), declared

    def rejected(self, declared: list[Entity], error: Exception, now: Instant) -> None:
        """The bus refused the record that declares these: refuse them."""
        for entity in declared:
            self.refused(Refusal(entity.key, "bus", f"the bus does not take it: {error}"), now)

    def _records(
        self, withdrawn: Rows, declared: list[Entity], moves: Rows, now_us: int
    ) -> Iterator[BusRecord]:
        messages: dict[int, pb.Declarations] = {}
        keys = np.array([entity.key for entity in declared], np.uint64)
        for bucket, entity in zip(buckets_of(keys).tolist(), declared, strict=True):
            one = messages.setdefault(bucket, pb.Declarations()).declaration.add()
            one.CopyFrom(entity.declaration)
            one.time_us = now_us
        withdrawn_in, moves_in = by_bucket(withdrawn), by_bucket(moves)
        for bucket in sorted({*messages, *withdrawn_in, *moves_in}):
            frame = FrameWriter()
            if bucket in withdrawn_in:
                frame.withdraw(withdrawn_in[bucket])
            if bucket in messages:
                frame.segment(b"D", messages[bucket].SerializeToString())
            if bucket in moves_in:
                frame.move(moves_in[bucket])
            yield BusRecord(topics.ENTITIES, frame.to_bytes(), bucket_key(bucket))

    def _moves(self, declared: list[Entity], now_us: int) -> Rows:
        """The positions of all that was reported or declared since the last call."""
        reports = np.array(self._reports, np.float64).reshape(-1, 5)
        self._reports = []
        slots = reports[:, 0].astype(np.int64)
        # A session may have ended, and its slot may be another client's, since it reported.
        alive = self.table.active[slots] & (self.table.generation[slots] == reports[:, 1])
        reports, slots = reports[alive], slots[alive]
        index, moving = self.entities.moving(slots)
        keys = self.entities.key[moving]
        lat, lon, accuracy_m = reports[index, 2], reports[index, 3], reports[index, 4]
        new = [
            one
            for one in declared
            if _moves_with_client(one.declaration) and not math.isnan(one.session.fix[0])
        ]
        if new:  # where its client was last
            keys = np.concatenate([np.array([one.key for one in new], np.uint64), keys])
            lat = np.concatenate([[one.session.fix[0] for one in new], lat])
            lon = np.concatenate([[one.session.fix[1] for one in new], lon])
            accuracy_m = np.concatenate([np.zeros(len(new)), accuracy_m])
        accuracy_m = np.where((accuracy_m > 0.0) & (accuracy_m < 1e6), accuracy_m, 0.0)
        # Grows over the incarnations of this adapter, too.
        self._sequence = max(self._sequence, now_us // 1000) + len(keys)
        sequence = np.arange(self._sequence - len(keys), self._sequence) & 0xFFFF_FFFF
        return rows(
            MOVES,
            len(keys),
            key=keys,
            time_us=now_us,
            lat_e7=to_e7(lat),
            lon_e7=to_e7(lon),
            accuracy_m=accuracy_m,
            sequence=sequence,
        )

    # Answers

    def handle_timer(self, now: Instant) -> None:
        """Answer declarations that no matcher refused in time, and repeat some once."""
        while self._fresh and self._fresh[0][0] <= now.s:
            # Its client's previous adapter may have withdrawn it by now, when reports stopped.
            entity = self._fresh.popleft()[1]
            if self.entities.get(entity.session, entity.side, entity.id) is entity:
                self._declared[entity.key] = entity
        while self._waiting:
            id, (session, due) = next(iter(self._waiting.items()))
            if due > now.s:
                break
            del self._waiting[id]
            self._answer(session, id, Attributes({"ok": True}), now)
        while self._answered and next(iter(self._answered.values()))[0] <= now.s:
            self._answered.popitem(last=False)
        for asked in self.queries.due(now.s):
            self._drop(asked.entity, now.us)
            self._answer(asked.entity.session, asked.entity.request, asked.answer(), now)

    def refused(self, refusal: Refusal, now: Instant) -> None:
        """A matcher refused a client's declaration."""
        row = int(self.entities.find(np.array([refusal.key], np.uint64))[0])
        if row < 0:
            return
        entity = self.entities.at(row)
        is_query = self.queries.pop(entity) is not None
        self.entities.remove(entity)
        self.counters["declarations_refused"] += 1
        # A client that was answered already must get the refusal too: repeat it until it has it.
        late = not is_query and self._waiting.pop(entity.request, None) is None
        self._answer(entity.session, entity.request, _refused(refusal), now, reliably=late)

    def _answer(
        self,
        session: Session,
        request: bytes,
        payload: Payload,
        now: Instant,
        *,
        reliably: bool = False,
    ) -> None:
        if self.table.by_identity.get(session.identity) is not session:
            return  # it repeats the request in its next session
        reply = Message(
            kind=Kind.REPLY,
            sent_us=now.us,
            source=self.adapter,
            destination=Address.client(session.identity),
            correlation=UUID(bytes=request),
            payload=payload,
            priority=Priority.REPLY,
        )
        envelope = to_envelope(reply)
        envelope.id = new_id(now.us)
        self._answered[request] = (now.s + _ANSWERED_S, envelope)
        if len(self._answered) > MAX_ANSWERS:
            self._answered.popitem(last=False)
        self.mediator.send(session, envelope, now, reliably=reliably)


def _check(declaration: pb.Declaration) -> None:
    """Refuse invalid declarations; the limits of matching are checked by the matchers."""
    if declaration.ByteSize() > MAX_DECLARATION_BYTES:
        raise MatchingError(
            f"a declaration has at most {MAX_DECLARATION_BYTES} bytes encoded", "size"
        )
    if declaration.HasField("publication"):
        publication_from_pb(declaration.publication)
    else:
        subscription_from_pb(declaration.subscription)


def _refused(refusal: Refusal) -> Attributes:
    return Attributes({"error": refusal.sentence, "reason": refusal.reason})


def _moves_with_client(declaration: pb.Declaration) -> bool:
    # A polygon stays where it is.
    return declaration.HasField("publication") or declaration.subscription.HasField("radius_m")
