"""What an adapter owes its clients, and what it has from them: the shell around the mediator."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.adapter.outbound import FanOut, Outbound
from mercury.adapter.receipts import for_sender, receipts
from mercury.bus import Bus
from mercury.config.mediator import MediatorSettings
from mercury.mediator import Arrival, Dispatch, Incoming, Numbers, Outgoing
from mercury.model import topics
from mercury.model.delivery import DeliveryState
from mercury.model.errors import BusError, PacketError
from mercury.model.message import Kind, Priority
from mercury.service import epoch_us, now, now_us
from mercury.session import AdapterSessions, Answered, Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire import parse
from mercury.wire.packet import WANTS_RECEIPT
from mercury.wire.records import envelope_route

_NOWHERE = -1
_MAX_REASON = 100
# Nobody keeps a ledger about the ledger, nor of answers, nor of what a subscriber asks for.
_NOT_IN_LEDGER = (pb.RECEIPT, pb.REPLY)
_ENDS_WITH_RECIPIENT = (DeliveryState.ACKNOWLEDGED, DeliveryState.REFUSED)


class _Content(NamedTuple):
    """A message as it is sent and accounted for."""

    envelope: pb.Envelope
    body: bytes
    until_us: int


class Deliveries:
    """Sends each message to each client until it is known what became of it, and says so."""

    def __init__(
        self,
        adapter: str,
        bus: Bus,
        sessions: AdapterSessions,
        settings: MediatorSettings,
    ) -> None:
        self.outgoing = Outgoing(
            random.Random(os.urandom(16)),
            resends_per_s=settings.resends_per_s,
            max_copies=settings.max_copies,
            forget_peers=True,
            now=now(),
        )
        self.incoming = Incoming(
            max_ids=1000, max_sources=sessions.settings.max_sessions, ack_after_s=0.0
        )
        self.outbound: Outbound | None = None
        self._adapter = adapter
        self._bus = bus
        self._sessions = sessions
        self._policies = settings.policies()
        self._epoch_us = epoch_us()
        self._begun_us = now_us()
        self._slot_of: NDArray[np.intp] = np.full(1024, _NOWHERE, np.intp)  # by peer
        self._unconfirmed: list[tuple[Session, bytes]] = []  # until the bus has it for sure
        self.to_confirm = asyncio.Event()
        self._gathering = False
        self.dropped: Counter[str] = Counter()

    # Who is there

    def opened(self, session: Session, seen: Collection[bytes]) -> set[bytes]:
        """A client has a session; returns what it was addressed in an earlier one, and has seen."""
        peer = self.outgoing.peers.number(session.identity)
        while peer >= len(self._slot_of):
            self._slot_of = np.concatenate([self._slot_of, np.full_like(self._slot_of, _NOWHERE)])
        self._slot_of[peer] = session.slot
        self._sessions.table.peer[session.slot] = peer
        time = now()
        had = self.had(session)
        for id in seen:
            dispatch = self.outgoing.get(id)
            if dispatch is not None and id not in had:
                # An earlier life of this adapter, or another one, got it through.
                self.outgoing.add(dispatch, np.array([peer], np.int32), time)
        self.outgoing.arrived(peer, time, seen)
        return had.union(seen)

    def had(self, session: Session) -> set[bytes]:
        """Ids of the messages that a client was addressed, now or before it came back."""
        peer = self.outgoing.peers.find(session.identity)
        if peer is None or not self.outgoing.peers.held[peer]:
            return set()
        return {
            bytes(dispatch.id)  # type: ignore[call-overload]
            for dispatch in self.outgoing
            if dispatch.row(peer) is not None
        }

    def closed(self, session: Session) -> None:
        """A client has no session any more."""
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
        slots: NDArray[np.intp],
        *,
        final: bool = False,
    ) -> None:
        """Take a message for these clients, and nobody else if `final`; `ship` sends it."""
        kind = Kind(envelope.kind).name.lower()
        topic = envelope.topic or envelope.event.kind
        named = envelope.destination.client
        _, policy = self._policies.of(kind, topic, envelope.policy)
        self.outgoing.post(
            envelope.id,
            _Content(envelope, body, until_us),
            self._sessions.table.peer[slots],
            now(),
            policy=policy,
            source=_name(envelope.source),
            topic=topic,
            priority=envelope.priority,
            expires=(until_us - self._epoch_us) / 1e6,
            ordered=envelope.ordered,
            final=final,
            awaited=named if named != envelope.source.client else "",
        )

    def address(self, id: bytes, slots: NDArray[np.intp]) -> int:
        """Send a message that was posted also to these; returns how many did not have it."""
        dispatch = self.outgoing.get(id)
        if dispatch is None:
            return 0
        return len(self.outgoing.add(dispatch, self._sessions.table.peer[slots], now()))

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Ship nothing in the meantime."""
        self._gathering = True
        try:
            yield
        finally:
            self._gathering = False

    def ship(self) -> None:
        """Queue what is due for sending."""
        assert self.outbound is not None
        if self._gathering:
            return
        for dispatch, peers in self.outgoing.due(now()):
            content: _Content = dispatch.content
            slots = self._slot_of[peers]
            self.outbound.put_fan_out(
                FanOut(
                    content.envelope.kind,
                    content.envelope.priority,
                    content.body,
                    content.until_us,
                    slots,
                    self._sessions.table.generation[slots],
                    flags=WANTS_RECEIPT if dispatch.policy.acknowledge else 0,
                    tags=peers,
                    on_part=partial(self._on_part, dispatch),
                )
            )

    def _on_part(self, dispatch: Dispatch, sent: Numbers, lost: Numbers) -> None:
        if len(sent):
            self.outgoing.sent(dispatch, sent, now())
        if len(lost):
            self.outgoing.unsent(dispatch, lost, now())

    def answered(self, answers: list[Answered]) -> None:
        """Clients say what they have."""
        time = now()
        for answer in answers:
            peer = self.outgoing.peers.find(answer.session.identity)
            if peer is None:
                continue
            self.outgoing.peers.acks[peer] = answer.sent
            self.outgoing.peers.acks_again[peer] = answer.resent
            for id in answer.received:
                self.outgoing.acknowledged(peer, id, time)
            for id, reason in answer.refused:
                self.outgoing.refused(peer, id, reason[:_MAX_REASON], time)

    # From the clients

    def take(self, session: Session, envelope: pb.Envelope) -> bool:
        """Whether a message that asks for a receipt is to be passed on.

        A repetition is answered as the first copy was. Where there is no room to remember it, a
        message is not taken, and not answered: its sender repeats it.
        """
        until = (envelope.expires_us - self._epoch_us) / 1e6 if envelope.expires_us else None
        arrival = self.incoming.receive(
            session.identity, envelope.id, now(), acknowledge=True, until=until, answer=False
        )
        if arrival is Arrival.REPEATED:
            reason = self.incoming.answer_to(session.identity, envelope.id)
            if reason:
                self._send_receipt(session, (), ((envelope.id, reason),))
            else:
                self.confirm(session, envelope.id)
        elif arrival is Arrival.NO_ROOM:
            self.dropped["no-room"] += 1
        return arrival is Arrival.NEW

    def confirm(self, session: Session, id: bytes) -> None:
        """Send a receipt as soon as what the client sent is durable."""
        self._unconfirmed.append((session, id))
        self.to_confirm.set()

    def refuse(self, session: Session, id: bytes, reason: str) -> None:
        """Tell a client that what it sent will never be taken."""
        self.incoming.refuse(session.identity, id, reason, now(), answer=False)
        self._send_receipt(session, (), ((id, reason),))

    def disown(self, session: Session, id: bytes) -> None:
        """What a client sent could not be kept: let it repeat that."""
        self.incoming.disown(session.identity, id)

    async def send_receipts(self) -> None:
        """Send the receipts of what has come so far, once the bus has it."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        try:
            await self._bus.flush()
        except BusError:
            for session, id in unconfirmed:
                self.disown(session, id)
            raise
        by_session: dict[Session, list[bytes]] = {}
        for session, id in unconfirmed:
            by_session.setdefault(session, []).append(id)
        for session, ids in by_session.items():
            self._send_receipt(session, ids, ())
        assert self.outbound is not None
        self.outbound.kick()

    def _send_receipt(
        self,
        session: Session,
        received: Collection[bytes],
        refused: Collection[tuple[bytes, str]],
    ) -> None:
        assert self.outbound is not None
        if self._sessions.table.by_identity.get(session.identity) is not session:
            return  # it asks again in its next session
        time = now()
        body = self._sessions.receipt_body(list(received), list(refused), time)
        packet = self._sessions.packet(session, Kind.RECEIPT, Priority.REPLY, body, time)
        self.outbound.put(packet, session.address, Priority.REPLY)

    # The ledger

    def publish(self) -> Iterator[None]:
        """Put on the bus what has become of messages; yields after each record."""
        time = now()
        for dispatch, peers in self.outgoing.take_news(time):
            content: _Content = dispatch.content
            if content.envelope.kind in _NOT_IN_LEDGER or content.envelope.HasField("matches"):
                continue
            for record in receipts(
                self.outgoing,
                dispatch,
                peers,
                adapter=self._adapter,
                envelope=content.envelope,
                epoch_us=self._epoch_us,
                now=time,
            ):
                self._bus.append(
                    topics.DELIVERIES,
                    record.SerializeToString(),
                    content.envelope.id,
                    (envelope_route(record),),
                )
                sender = content.envelope.source.client
                if sender:
                    reply = for_sender(record, sender)
                    self._bus.append(
                        topics.REPLIES,
                        reply.SerializeToString(),
                        sender.encode(),
                        (envelope_route(reply),),
                    )
                yield

    def learn(self, body: bytes) -> None:
        """Take in what this adapter wrote in an earlier life, or another one has written."""
        envelope = parse(body)
        if envelope.source.adapter == self._adapter and envelope.sent_us >= self._begun_us:
            return
        found = envelope.deliveries
        dispatch = self.outgoing.get(found.message)
        if dispatch is None:
            return
        if dispatch.awaited in found.client:
            dispatch.awaited = ""  # whoever has it says how that ended
        time = now()
        mine = envelope.source.adapter == self._adapter
        for client, state in zip(found.client, found.state, strict=False):
            if state > DeliveryState.UNREACHABLE:
                raise PacketError("malformed")
            peer = self.outgoing.peers.find(client)
            if mine and peer is None:
                peer = self.outgoing.peers.number(client)
            # Of the others' clients, only those matter that have been here.
            if peer is not None and (mine or state in _ENDS_WITH_RECIPIENT):
                self.outgoing.known(dispatch, peer, DeliveryState(state), time)


def _name(address: pb.Address) -> str:
    which = address.WhichOneof("target")
    return f"{which}:{getattr(address, which)}" if which else ""
