"""The adapter's mediator: messages its clients must acknowledge, and those it acknowledges.

A core: `now` comes in; packets, fan-outs and records come out.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.adapter.routing import BusRecord
from mercury.config.mediator import MediatorSettings
from mercury.geo.arrays import grown
from mercury.mediator import Arrival, Dispatch, Incoming, Numbers, Outgoing, Policy
from mercury.model import topics
from mercury.model.delivery import ASKED, MAX_ASKED, DeliveryState
from mercury.model.errors import PacketError
from mercury.model.identity import ID_BYTES, new_id
from mercury.model.instant import Instant
from mercury.model.message import VERSION, EventKind, Kind, Priority
from mercury.session import AdapterSessions, Answered, Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire import parse
from mercury.wire.packet import WANTS_RECEIPT
from mercury.wire.records import envelope_route

# A critical message without expiry is repeated for this long.
REPEAT_US = 30_000_000
_NOWHERE = -1
_MAX_REASON = 100
_ROWS_PER_RECORD = 300  # long names included, a record stays below what a packet carries
_MAX_ANSWERS = 256  # packets to a sender that asks for receipts
_SENDER_WAITS_US = 600_000_000
_MAX_OUTCOMES_BYTES = 64 * 1024**2  # of receipts, for senders that ask again
# Receipts and replies have no entry in the ledger.
_NOT_IN_LEDGER = (pb.RECEIPT, pb.REPLY)
_ENDS_WITH_RECIPIENT = (DeliveryState.ACKNOWLEDGED, DeliveryState.REFUSED)

Unconfirmed = tuple[Session, bytes]  # who sent a message, and its id
# One packet for one client: packet, address, priority, expiry (0: never).
Single = tuple[bytes, bytes, int, int]


@dataclass(slots=True)
class FanOut:
    """One body for many clients."""

    kind: int
    priority: int
    body: bytes
    expires_us: int  # 0: never
    slots: NDArray[np.intp]
    generations: NDArray[np.uint32]
    flags: int = 0  # of the packets' headers
    # Called after each part with the `tags` of those sent, of those not sent, and the time.
    tags: Numbers | None = None
    on_part: Callable[[Numbers, Numbers, float], None] | None = None
    done: int = 0  # slots handled
    sent: int = 0

    def report(self, first: int, last: int, sent: NDArray[np.bool_] | None, now: float) -> None:
        """Report what was sent to the slots from first to last; None: nothing was."""
        if self.on_part is not None and self.tags is not None and last > first:
            tags = self.tags[first:last]
            if sent is None:
                sent = np.zeros(len(tags), bool)
            self.on_part(tags[sent], tags[~sent], now)


class _Content(NamedTuple):
    """A message as it is sent and accounted for; a parsed one would be many times as large."""

    body: bytes
    until_us: int
    kind: pb.Kind
    policy: pb.DeliveryPolicy
    sent_us: int
    expires_us: int
    client: str  # its sender, if that is a client
    is_in_ledger: bool


class AdapterMediator:
    """Sends each message to each client until its outcome is known, and reports that.

    `outbox` collects single packets to send. `unconfirmed` collects what clients sent that is not
    durable yet: the caller makes it so and calls `confirmed`, or `incoming.disown` if that failed.
    `counters` and `dropped` are those of the whole adapter.
    """

    def __init__(
        self,
        adapter: str,
        sessions: AdapterSessions,
        settings: MediatorSettings,
        rng: random.Random,
        *,
        now: float,
        epoch_us: int,
    ) -> None:
        self.outgoing = Outgoing(
            rng,
            resends_per_s=settings.resends_per_s,
            max_copies=settings.max_copies,
            max_messages=settings.max_messages,
            max_messages_per_client=settings.max_messages_per_client,
            forget_peers=True,
            remember_s=settings.remember_s,
            on_removed=self._on_removed,
            now=now,
        )
        self.incoming = Incoming(
            max_ids=settings.max_ids_per_client,
            max_ids_of_all=settings.max_ids,
            max_sources=sessions.settings.max_sessions,
            ack_after_s=0.0,
        )
        # Called with the id of a message that no further client will be sent.
        self.when_done: Callable[[bytes], None] = lambda id: None
        self.settings = settings
        self.outbox: list[Single] = []
        self.unconfirmed: list[Unconfirmed] = []
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.table = sessions.table
        self._adapter = adapter
        self._sessions = sessions
        self._policies = settings.policies()
        self._epoch_us = epoch_us  # wall clock at now = 0
        self._begun_us = epoch_us + int(now * 1e6)
        self._slot_of: NDArray[np.intp] = np.full(1024, _NOWHERE, np.intp)  # by peer
        self._outcomes = _Outcomes()
        self._rng = rng

    # Presence

    def opened(self, session: Session, seen: Collection[bytes], now: float) -> set[bytes]:
        """A client has a session; returns the messages of earlier sessions that it has seen."""
        peer = self.outgoing.peers.number(session.identity)
        self._slot_of = grown(self._slot_of, peer, _NOWHERE)
        self._slot_of[peer] = session.slot
        self.table.peer[session.slot] = peer
        had = self.had(session)
        for id in seen:
            dispatch = self.outgoing.get(id)
            if dispatch is not None and id not in had:
                # An earlier incarnation of this adapter, or another one, got it through.
                self.outgoing.add(dispatch, np.array([peer], np.int32), now)
        self.outgoing.arrived(peer, now, seen)
        self.incoming.arrived(session.identity)
        return had.union(seen)

    def had(self, session: Session) -> set[bytes]:
        """Ids of the messages addressed to a client, in this session or an earlier one."""
        peer = self.outgoing.peers.find(session.identity)
        if peer is None or not self.outgoing.peers.held[peer]:
            return set()
        return {
            bytes(dispatch.id)  # type: ignore[call-overload]
            for dispatch in self.outgoing.of(peer)
        }

    def closed(self, session: Session) -> None:
        self.incoming.left(session.identity)
        peer = self.outgoing.peers.find(session.identity)
        if peer is not None and self._slot_of[peer] == session.slot:
            self._slot_of[peer] = _NOWHERE
            self.outgoing.left(peer)

    # To the clients

    def post(
        self,
        envelope: pb.Envelope,
        body: bytes,
        until_us: int,
        peers: Numbers,
        now: float,
        *,
        final: bool = False,
        in_ledger: bool = True,
    ) -> None:
        """Take a message for these clients, and no others if `final`; `due` sends it."""
        named = envelope.destination.client
        # What the adapter has to say to a client takes room of the client, and gives way first.
        of_client = (f"client:{named}", 0) if named and envelope.source.adapter else None
        policy, topic = self._policy_of(envelope)
        self.outgoing.post(
            envelope.id,
            _Content(
                body,
                until_us,
                envelope.kind,
                envelope.policy,
                envelope.sent_us,
                envelope.expires_us,
                envelope.source.client,
                in_ledger
                and envelope.kind not in _NOT_IN_LEDGER
                and not envelope.HasField("matches"),
            ),
            peers,
            now,
            policy=policy,
            source=source_name(envelope.source),
            topic=topic,
            priority=envelope.priority,
            expires=(until_us - self._epoch_us) / 1e6,
            ordered=envelope.ordered,
            final=final,
            awaited=named if named != envelope.source.client else "",
            sole=bool(named),
            room_of=of_client,
        )

    def post_content(
        self,
        envelope: pb.Envelope,
        body: bytes,
        until_us: int,
        slots: NDArray[np.intp],
        now: float,
    ) -> bool:
        """Take content for subscribers; False if its policy is to send it just once."""
        policy, _ = self._policy_of(envelope)
        if policy.acknowledge:
            peers = self.table.peer[slots]
            self.post(envelope, body, until_us, peers, now, final=True, in_ledger=False)
        return policy.acknowledge

    def _policy_of(self, envelope: pb.Envelope) -> tuple[Policy, str]:
        topic = envelope.topic or envelope.event.kind
        _, policy = self._policies.of(Kind(envelope.kind).name.lower(), topic, envelope.policy)
        return policy, topic

    def tell_sender(self, client: str, body: bytes, until_us: int, now: float) -> None:
        """Report the outcome of a message to the client that sent it, now or when it reconnects."""
        envelope = parse(body)
        is_here = client in self.table.by_identity
        if is_here or self.incoming.answer_to(client, envelope.deliveries.message) is not None:
            peers = np.array([self.outgoing.peers.number(client)], np.int32)
            self.post(envelope, body, until_us, peers, now, final=True)

    def tell_again(self, session: Session, request: pb.Envelope, now: Instant) -> None:
        """Answer a client that asks what became of messages it sent.

        It may have missed receipts while it, or this adapter, was away. One answer is bounded: of
        more it is told a part, another one the next time.
        """
        asked = request.attributes.values[ASKED].blob
        source = f"client:{session.identity}"
        ends = min(len(asked), MAX_ASKED * ID_BYTES)
        found: list[Callable[[], pb.Envelope]] = []
        for id in {asked[at : at + ID_BYTES] for at in range(0, ends, ID_BYTES)}:
            dispatch = self.outgoing.get(id)
            if dispatch is not None and dispatch.source == source:
                found += [
                    partial(self._receipts, dispatch, peers, now.s)
                    for peers in _by_records(dispatch.peers)
                ]
            found += [partial(parse, body) for body in self._outcomes.of(id)]
        for record in self._rng.sample(found, min(len(found), _MAX_ANSWERS)):
            receipts = record()
            if receipts.deliveries.source == source:
                self.send(session, _for_sender(receipts, session.identity), now)

    def send(
        self, session: Session, envelope: pb.Envelope, now: Instant, *, reliably: bool = False
    ) -> None:
        """Send a message to one client: once, or until it is acknowledged."""
        body = envelope.SerializeToString()
        if reliably:
            until_us = envelope.expires_us or now.us + REPEAT_US
            peers = self.table.peer[[session.slot]]
            self.post(envelope, body, until_us, peers, now.s, final=True)
        else:
            self.send_body(
                session, envelope.kind, envelope.priority, body, envelope.expires_us, now.s
            )

    def send_body(
        self, session: Session, kind: int, priority: int, body: bytes, expires_us: int, now: float
    ) -> None:
        """Send an encoded message to one client, once."""
        packet = self._sessions.packet(session, kind, priority, body, now)
        self.outbox.append((packet, session.address, priority, expires_us))

    def address(self, id: bytes, slots: NDArray[np.intp], now: float) -> int:
        """Send a message that was posted also to these; returns how many did not have it."""
        dispatch = self.outgoing.get(id)
        if dispatch is None:
            return 0
        content: _Content = dispatch.content
        own = self.table.by_identity.get(content.client)
        if own is not None:
            slots = slots[slots != own.slot]  # not to its sender
        return len(self.outgoing.add(dispatch, self.table.peer[slots], now))

    def due(self, now: float) -> Iterator[FanOut]:
        """The fan-outs to send now, the most urgent first."""
        for dispatch, peers in self.outgoing.due(now):
            content: _Content = dispatch.content
            slots = self._slot_of[peers]
            yield FanOut(
                content.kind,
                dispatch.priority,
                content.body,
                content.until_us,
                slots,
                self.table.generation[slots],
                flags=WANTS_RECEIPT if dispatch.policy.acknowledge else 0,
                tags=peers,
                on_part=partial(self._on_part, dispatch),
            )

    def _on_removed(self, id: bytes) -> None:
        self.when_done(id)

    def _on_part(self, dispatch: Dispatch, sent: Numbers, lost: Numbers, now: float) -> None:
        if len(sent):
            self.outgoing.sent(dispatch, sent, now)
        if len(lost):
            self.outgoing.unsent(dispatch, lost, now)

    def answered(self, answers: list[Answered], now: float) -> None:
        """Clients acknowledged or refused messages."""
        for answer in answers:
            peer = self.outgoing.peers.find(answer.session.identity)
            if peer is None:
                continue
            self.outgoing.peers.acks[peer] = answer.sent
            self.outgoing.peers.acks_again[peer] = answer.resent
            for id in answer.received:
                self.outgoing.acknowledged(peer, id, now)
            for id, reason in answer.refused:
                self.outgoing.refused(peer, id, reason[:_MAX_REASON], now)

    # From the clients

    def take(self, session: Session, envelope: pb.Envelope, now: float) -> bool:
        """Whether to pass on a message that asks for a receipt.

        A repetition is answered as the first copy was. Without room to remember it, a message is
        neither taken nor answered: its sender repeats it.
        """
        until = (envelope.expires_us - self._epoch_us) / 1e6 if envelope.expires_us else None
        arrival = self.incoming.receive(
            session.identity,
            envelope.id,
            now,
            acknowledge=True,
            until=until,
            answer=False,
            urgent=envelope.event.kind == EventKind.EMERGENCY,
        )
        if arrival is Arrival.REPEATED:
            reason = self.incoming.answer_to(session.identity, envelope.id)
            if reason:
                self._send_receipt(session, (), ((envelope.id, reason),), now)
            else:
                self.unconfirmed.append((session, envelope.id))
        elif arrival is Arrival.NO_ROOM:
            self.dropped["no-room"] += 1
        return arrival is Arrival.NEW

    def refuse(self, session: Session, id: bytes, reason: str, now: float) -> None:
        """Answer a client that its message is refused for good."""
        self.incoming.refuse(session.identity, id, reason, now, answer=False)
        self._send_receipt(session, (), ((id, reason),), now)

    def confirmed(self, durable: Collection[Unconfirmed], now: float) -> None:
        """Messages of clients are durable: acknowledge them."""
        by_session: dict[Session, list[bytes]] = {}
        for session, id in durable:
            by_session.setdefault(session, []).append(id)
        for session, ids in by_session.items():
            self._send_receipt(session, ids, (), now)

    def _send_receipt(
        self,
        session: Session,
        received: Collection[bytes],
        refused: Collection[tuple[bytes, str]],
        now: float,
    ) -> None:
        if self.table.by_identity.get(session.identity) is session:
            body = self._sessions.receipt_body(list(received), list(refused), now)
            self.send_body(session, Kind.RECEIPT, Priority.REPLY, body, 0, now)
        # Else it repeats the message in its next session.

    # The ledger

    def changes(self, now: float) -> Iterator[BusRecord]:
        """The outcomes of messages since the last call, as records for the bus."""
        self.incoming.forget(now)
        self._outcomes.expire(now)
        for dispatch, peers in self.outgoing.take_changes(now):
            content: _Content = dispatch.content
            if not content.is_in_ledger:
                continue
            sender = content.client
            for some in _by_records(peers):
                receipts = self._receipts(dispatch, some, now)
                yield _record(topics.DELIVERIES, receipts, receipts.correlation)
                if sender:
                    record = receipts.SerializeToString()
                    self._outcomes.add(receipts.deliveries, record, now)
                    yield _record(topics.REPLIES, _for_sender(receipts, sender), sender.encode())

    def _receipts(self, dispatch: Dispatch, peers: Numbers, now: float) -> pb.Envelope:
        """The current state of the copies for these peers."""
        content: _Content = dispatch.content
        rows = dispatch.rows(peers)
        record = pb.Envelope(version=VERSION, kind=pb.RECEIPT, priority=Priority.BACKGROUND)
        record.sent_us = self._epoch_us + int(now * 1e6)
        record.id = new_id(record.sent_us)
        record.source.adapter = self._adapter
        record.destination.service = "ledger"
        record.correlation = bytes(dispatch.id)  # type: ignore[call-overload]
        found = record.deliveries
        found.message = record.correlation
        found.source = dispatch.source
        found.topic = dispatch.topic
        found.kind = content.kind
        found.priority = dispatch.priority
        # The policy in use, which a rule may have raised above the one the message asks for.
        asked = dispatch.policy.acknowledge
        found.policy = (content.policy or pb.REPEAT) if asked else pb.FIRE_AND_FORGET
        found.sent_us = content.sent_us
        found.expires_us = content.expires_us
        found.client.extend(self.outgoing.peers.names(peers))
        found.state.extend(dispatch.state[rows].tolist())
        numbers, reasons = np.unique(dispatch.reason[rows], return_inverse=True)
        found.reasons.extend(self.outgoing.reason_text(number) for number in numbers.tolist())
        found.reason.extend(reasons.tolist())
        found.tries.extend(dispatch.tries[rows].tolist())
        found.addressed_us.extend(self._wall_us(dispatch.addressed[rows]))
        found.first_sent_us.extend(self._wall_us(dispatch.first_sent[rows]))
        found.settled_us.extend(self._wall_us(dispatch.settled[rows]))
        found.acks.extend(self.outgoing.peers.acks[peers].tolist())
        found.acks_again.extend(self.outgoing.peers.acks_again[peers].tolist())
        return record

    def _wall_us(self, times: NDArray[np.float64]) -> list[int]:
        """In wall-clock time; 0 for those that have none yet."""
        wall = np.where(np.isnan(times), -self._epoch_us, times * 1e6) + self._epoch_us
        whole: list[int] = wall.astype(np.int64).tolist()
        return whole

    def learn(self, body: bytes, now: float) -> None:
        """Read receipts that an earlier incarnation of this adapter wrote, or another adapter."""
        envelope = parse(body)
        if envelope.source.adapter == self._adapter and envelope.sent_us >= self._begun_us:
            return
        found = envelope.deliveries
        self._outcomes.add(found, body, now)
        dispatch = self.outgoing.get(found.message)
        if dispatch is None:
            return
        if dispatch.awaited in found.client:
            dispatch.awaited = ""  # the adapter that has it reports the outcome
        mine = envelope.source.adapter == self._adapter
        for client, state in zip(found.client, found.state, strict=False):
            if state > DeliveryState.UNREACHABLE:
                raise PacketError("malformed")
            peer = self.outgoing.peers.find(client)
            if mine and peer is None:
                peer = self.outgoing.peers.number(client)
            # Of other adapters' clients, only those that have been here matter.
            if peer is not None and (mine or state in _ENDS_WITH_RECIPIENT):
                self.outgoing.known(dispatch, peer, DeliveryState(state), now)
            elif dispatch.sole and state == DeliveryState.ACKNOWLEDGED:
                self.outgoing.close(dispatch)  # another adapter's client has it


class _Outcomes:
    """What became of clients' messages, as the ledger has it, for a while; the oldest make room."""

    def __init__(self, max_bytes: int = _MAX_OUTCOMES_BYTES) -> None:
        # By message: when the first was added, and the records.
        self._found: OrderedDict[bytes, tuple[float, list[bytes]]] = OrderedDict()
        self._bytes = 0
        self._max_bytes = max_bytes

    def of(self, message: bytes) -> list[bytes]:
        return self._found[message][1] if message in self._found else []

    def add(self, found: pb.Deliveries, record: bytes, now: float) -> None:
        if not found.source.startswith("client:") or set(found.state) == {DeliveryState.WAITING}:
            return
        self._found.setdefault(found.message, (now, []))[1].append(record)
        self._bytes += len(record)
        while self._bytes > self._max_bytes:
            self._drop_oldest()

    def expire(self, now: float) -> None:
        while self._found and next(iter(self._found.values()))[0] < now - _SENDER_WAITS_US / 1e6:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, records) = self._found.popitem(last=False)
        self._bytes -= sum(map(len, records))


def _by_records(peers: Numbers) -> Iterator[Numbers]:
    for first in range(0, len(peers), _ROWS_PER_RECORD):
        yield peers[first : first + _ROWS_PER_RECORD]


def _record(topic: str, envelope: pb.Envelope, key: bytes) -> BusRecord:
    return BusRecord(topic, envelope.SerializeToString(), key, (envelope_route(envelope),))


def _for_sender(record: pb.Envelope, client: str) -> pb.Envelope:
    """The same for the client that sent the message: repeated, but only for a short time."""
    copy = pb.Envelope()
    copy.CopyFrom(record)
    copy.id = new_id(record.sent_us)
    copy.priority = Priority.REPLY
    copy.policy = pb.REPEAT
    copy.expires_us = record.sent_us + _SENDER_WAITS_US
    copy.destination.client = client
    return copy


def source_name(address: pb.Address) -> str:
    """Who sent a message, with the kind of it: `client:abe`."""
    which = address.WhichOneof("target")
    return f"{which}:{getattr(address, which)}" if which else ""
