"""The client's mediator: messages the adapter must acknowledge, and those it acknowledges."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mercury.config.mediator import MediatorSettings
from mercury.mediator import Arrival, Incoming, Outgoing
from mercury.model.delivery import DeliveryState, Reason
from mercury.model.errors import MessageError, MessageTooLargeError, NotConnectedError
from mercury.model.message import Message
from mercury.service.clock import epoch_us, now
from mercury.session import AdapterAnswered, ClientSession, Delivered, SessionState
from mercury.wire import MAX_BODY_BYTES, encode, mercury_pb2
from mercury.wire.packet import WANTS_RECEIPT

_ADAPTER = "adapter"
_MAX_IDS = 20_000
_CONTENT_REPEATED_S = 75.0  # adapters keep content for a minute
_OUTCOMES = 4096


class DeliveryOutcome(NamedTuple):
    """How a message of this client ended with its adapter."""

    state: DeliveryState
    reason: str


class ClientMediator:
    """Retries messages until the adapter has them, and acknowledges those from the adapter."""

    def __init__(self, session: ClientSession, settings: MediatorSettings) -> None:
        self.outgoing = Outgoing(random.Random(os.urandom(16)), resends_per_s=1000.0, now=now())
        self.incoming = Incoming(ack_after_s=settings.ack_after_s, max_ids=_MAX_IDS)
        self.receipt_packets = 0  # packets of receipts alone, not piggybacked
        self._session = session
        self._policies = settings.policies()
        self._epoch_us = epoch_us()  # the wall clock when `now` was zero
        self._adapter = self.outgoing.peers.number(_ADAPTER)
        self._outcomes: OrderedDict[UUID, DeliveryOutcome] = OrderedDict()  # of late
        self._taken: dict[UUID, asyncio.Future[DeliveryOutcome]] = {}
        session.piggybacked = self._piggybacked

    # To the adapter

    def post(self, message: Message, extra: bytes = b"") -> bool:
        """Take a message if its policy retries it; False if it is to be sent just once.

        `extra` is a part of the Envelope that a Message does not have, encoded.
        """
        kind = message.kind.name.lower()
        topic = message.topic or (message.event.kind if message.event else "")
        strength, policy = self._policies.of(kind, topic, message.policy)
        if not strength:
            return False
        body = encode(message) + extra
        if len(body) > MAX_BODY_BYTES:  # raised here, to the caller
            raise MessageTooLargeError(len(body), MAX_BODY_BYTES)
        expires = (message.expires_us - self._epoch_us) / 1e6 if message.expires_us else np.inf
        self.outgoing.post(
            message.id.bytes,
            (message.kind, message.priority, body),
            np.array([self._adapter], np.int32),
            now(),
            policy=policy,
            topic=topic or kind,
            priority=message.priority,
            expires=expires,
            ordered=message.ordered,
            final=True,  # the adapter is the only recipient
        )
        return True

    def outcome(self, id: UUID) -> DeliveryOutcome | None:
        """How a message ended with the adapter, or that it is on its way; None if unknown."""
        if id not in self._outcomes and self.outgoing.get(id.bytes) is not None:
            return DeliveryOutcome(DeliveryState.WAITING, Reason.NONE)
        return self._outcomes.get(id)

    async def taken(self, id: UUID) -> DeliveryOutcome:
        """Wait until a message that was posted is settled with the adapter."""
        if id in self._outcomes:
            return self._outcomes[id]
        if self.outgoing.get(id.bytes) is None:
            raise MessageError("nobody answers a message that is fire-and-forget")
        future = self._taken.setdefault(id, asyncio.get_running_loop().create_future())
        return await asyncio.shield(future)

    def connected(self) -> None:
        """There is a session: send what waits."""
        self.outgoing.arrived(self._adapter, now())

    def disconnected(self) -> None:
        """There is no session until `connected`."""
        self.outgoing.left(self._adapter)

    def close(self) -> None:
        """Send the outstanding acknowledgements; none will be received any more."""
        self._answer(math.inf)
        self.disconnected()
        for waiter in self._taken.values():
            if not waiter.done():
                waiter.set_exception(NotConnectedError(f"{self._session.identity} was closed"))
                waiter.exception()  # the waiter may have been cancelled
        self._taken.clear()

    def answered(self, answer: AdapterAnswered) -> None:
        """The adapter acknowledged or refused messages."""
        time = now()
        for id in answer.received:
            self.outgoing.acknowledged(self._adapter, id, time)
        for id, reason in answer.refused:
            self.outgoing.refused(self._adapter, id, reason, time)

    # From the adapter

    def receive(self, delivered: Delivered) -> Arrival:
        """Take a copy, and acknowledge it if asked to; only NEW messages are passed on."""
        message = delivered.message
        until = (message.expires_us - self._epoch_us) / 1e6 if message.expires_us else None
        if message.is_for_subscribers:
            end = now() + _CONTENT_REPEATED_S
            until = end if until is None else min(until, end)
        return self.incoming.receive(
            _ADAPTER,
            message.id.bytes,
            now(),
            acknowledge=delivered.wants_receipt,
            until=until,
        )

    def refuse(self, message: Message, reason: str) -> None:
        """Refuse a received message."""
        self.incoming.refuse(_ADAPTER, message.id.bytes, reason, now())

    def accept(self, message: Message) -> None:
        """Acknowledge a message that was refused before."""
        self.refuse(message, Reason.NONE)

    # Timer

    def work(self) -> list[tuple[UUID, DeliveryOutcome]]:
        """Send what is due; returns what is settled. Nothing is due without a session."""
        time = now()
        for dispatch, peers in self.outgoing.due(time):
            kind, priority, body = dispatch.content
            flags = WANTS_RECEIPT if dispatch.policy.acknowledge else 0
            self._session.send_body(kind, priority, body, flags)
            self.outgoing.sent(dispatch, peers, time)
        self._answer(time)
        settled = []
        for dispatch, _ in self.outgoing.take_changes(time):
            if not dispatch.waiting:
                assert isinstance(dispatch.id, bytes)
                reason = self.outgoing.reason_text(int(dispatch.reason[0]))
                outcome = DeliveryOutcome(DeliveryState(int(dispatch.state[0])), reason)
                id = UUID(bytes=dispatch.id)
                settled.append((id, outcome))
                self._outcomes[id] = outcome
                waiter = self._taken.pop(id, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(outcome)
        while len(self._outcomes) > _OUTCOMES:
            self._outcomes.popitem(last=False)
        return settled

    def _answer(self, due_by: float) -> None:
        if self._session.state is SessionState.ESTABLISHED:
            for _, answers in self.incoming.answers_due(due_by):
                self._session.send_receipts(self._encoded(answers), now())
                self.receipt_packets += 1

    def next_timer(self) -> float | None:
        """When to call `work` next."""
        due = self.outgoing.next_timer()
        if self._session.state is not SessionState.ESTABLISHED:
            return due
        times = (due, self.incoming.next_timer())
        return min((at for at in times if at is not None), default=None)

    def _piggybacked(self) -> bytes:
        answers = self.incoming.take_answers(_ADAPTER)
        return self._encoded(answers) if answers else b""

    def _encoded(self, answers: list[tuple[Hashable, str]]) -> bytes:
        statistics = self.incoming.statistics[_ADAPTER]
        envelope = mercury_pb2.Envelope(
            receipts_sent=statistics.acks_sent, receipts_resent=statistics.acks_resent
        )
        for id, refusal in answers:
            assert isinstance(id, bytes)
            if refusal:
                envelope.refused.add(id=id, reason=refusal)
            else:
                envelope.received.append(id)
        return envelope.SerializeToString()
