"""A client's gateway for applications on the same device (Mercury §4.6).

Applications speak to the client over loopback what the client speaks to the adapter over the
network, so `connect` opens either. What they publish goes out in the client's name; alerts reach
all of them, replies the one that asked, content those whose subscription it satisfies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from mercury.client.relayed import RelayedDeclarations
from mercury.client.subscriptions import satisfies
from mercury.mediator import Arrival, Incoming
from mercury.model.declarations import Matches
from mercury.model.delivery import Deliveries, DeliveryState
from mercury.model.errors import (
    FilterError,
    MessageError,
    MessageTooLargeError,
    NotConnectedError,
    PacketError,
)
from mercury.model.filter import Filter, compile_filter
from mercury.model.message import AddressKind, Kind, Message, Priority, Subscription
from mercury.net import Packets, UdpEndpoint, bind_udp
from mercury.service.clock import epoch_us, now
from mercury.session import AdapterSessions, Closed, Opened, Received, Session, SessionSettings
from mercury.wire import encode, from_envelope
from mercury.wire.packet import TOKEN_BYTES

if TYPE_CHECKING:
    from mercury.client.client import Client

log = logging.getLogger(__name__)

_TICK_S = 0.1
_MAX_OPEN_REQUESTS = 10_000
_ANSWERED = (Kind.REQUEST, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE)


class Relay:
    """Sessions with local applications, on behalf of one client."""

    def __init__(self, client: Client, port: int) -> None:
        self._client = client
        self._port = port
        settings = SessionSettings(require_telemetry=False, max_sessions=1000)
        self.sessions = AdapterSessions(
            client.identity, settings, lambda: secrets.token_bytes(TOKEN_BYTES), epoch_us=epoch_us()
        )
        self._endpoint: UdpEndpoint | None = None
        self._timer: asyncio.TimerHandle | None = None
        # message id -> the application that waits for the reply
        self._requests: OrderedDict[UUID | None, str] = OrderedDict()
        self._subscriptions: dict[str, dict[bytes, tuple[Subscription, Filter]]] = {}
        self._groups: dict[str, set[str]] = {}  # that the applications want the client to be in
        self._incoming = Incoming()
        self._moving = RelayedDeclarations(client.address)

    @property
    def port(self) -> int:
        """The loopback port applications connect to."""
        assert self._endpoint is not None
        return self._endpoint.address[1]

    def open(self) -> None:
        """Listen on loopback."""
        self._endpoint = UdpEndpoint(bind_udp("127.0.0.1", self._port), self._on_packets)
        self._tick()

    def close(self) -> None:
        """Stop listening."""
        if self._timer is not None:
            self._timer.cancel()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def subscriptions(self) -> list[Subscription]:
        """What the applications have subscribed to."""
        return [
            subscription
            for subscriptions in self._subscriptions.values()
            for subscription, _ in subscriptions.values()
        ]

    def declarations(self) -> Iterable[Message]:
        """What the applications have declared that moves, to be said to a new adapter."""
        return self._moving

    def deliver(self, message: Message, body: bytes) -> None:
        """Pass a message of the client on to the applications it is for."""
        table = self.sessions.table
        if isinstance(message.payload, Matches) and message.kind is Kind.CONTENT:
            for session in list(table):
                theirs = self._moving.inward(session.identity, message, message.payload)
                if theirs is not None:
                    self._pass_in(session, message, encode(theirs))
            return
        if message.kind is Kind.REPLY:
            app = self._requests.pop(message.correlation, None)
            sessions = [table.by_identity.get(app)] if app is not None else []
        elif isinstance(message.payload, Deliveries):
            app = self._requests.get(message.payload.message)
            sessions = [table.by_identity.get(app)] if app is not None else []
        elif message.kind is Kind.CONTENT and message.destination.kind is AddressKind.BROKER:
            here = self._client.position
            sessions = [
                table.by_identity.get(app)
                for app, subscriptions in self._subscriptions.items()
                if any(
                    satisfies(message, subscription, wanted, here)
                    for subscription, wanted in subscriptions.values()
                )
            ]
        else:
            sessions = list(table)
        for one in sessions:
            if one is not None:
                self._pass_in(one, message, body)

    def _pass_in(self, session: Session, message: Message, body: bytes) -> None:
        packet = self.sessions.packet(session, message.kind, message.priority, body, now())
        self._send([(packet, session.address)])

    def _on_packets(self, packets: Packets) -> None:
        time = now()
        for data, address in packets:
            event = self.sessions.receive(data, address, time)
            try:
                if isinstance(event, Received):
                    self._on_received(event, time)
                elif isinstance(event, Closed) or (isinstance(event, Opened) and event.replaced):
                    self._forget(event.session.identity)
                if isinstance(event, Opened) and event.envelope.groups:
                    self._set_groups(event.session.identity, event.envelope.groups)
            except PacketError as error:
                self.sessions.dropped[error.reason] += 1
            except FilterError:
                self.sessions.dropped["bad-filter"] += 1
            except MessageTooLargeError:  # in the client's name it is longer
                self.sessions.dropped["oversized"] += 1
            except NotConnectedError:
                self.sessions.dropped["not-connected"] += 1
        self._flush()

    def _on_received(self, event: Received, time: float) -> None:
        message, session = from_envelope(event.envelope), event.session
        if event.wants_receipt:
            arrival = self._incoming.receive(
                session.identity, message.id, time, acknowledge=True, answer=False
            )
            if arrival is not Arrival.NEW:
                return  # it is answered when the adapter has answered
        if message.kind is Kind.GROUPS:
            self._set_groups(session.identity, event.envelope.groups)
        else:
            self._pass_on(session, message)
        if event.wants_receipt:
            self._client.run(self._answer(session, message))

    async def _answer(self, session: Session, message: Message) -> None:
        """Tell an application what became of what it said, once the adapter has told us."""
        state, reason = DeliveryState.ACKNOWLEDGED, ""
        with contextlib.suppress(MessageError):  # nobody is asked: passed on is all we know
            state, reason = await self._client.mediation.taken(message.id)
        if self.sessions.table.by_identity.get(session.identity) is session:
            id, taken = message.id.bytes, state is DeliveryState.ACKNOWLEDGED
            received = [id] if taken else []
            refused = [] if taken else [(id, reason or state.label)]
            time = now()
            body = self.sessions.receipt_body(received, refused, time)
            packet = self.sessions.packet(session, Kind.RECEIPT, Priority.REPLY, body, time)
            self._send([(packet, session.address)])

    def _set_groups(self, app: str, groups: Iterable[str]) -> None:
        before = set().union(*self._groups.values())
        self._groups[app] = set(groups)
        after = set().union(*self._groups.values())
        if before != after:
            self._client.regroup(joined=after - before, left=before - after)

    def _pass_on(self, session: Session, message: Message) -> None:
        app = session.identity
        if message.kind in _ANSWERED or message.destination.kind is not AddressKind.BROKER:
            self._requests[message.id] = app
            if len(self._requests) > _MAX_OPEN_REQUESTS:
                self._requests.popitem(last=False)
        subscription = message.payload
        if isinstance(subscription, Subscription):
            subscriptions = self._subscriptions.setdefault(app, {})
            if message.kind is Kind.UNSUBSCRIBE:
                subscriptions.pop(subscription.id, None)
            else:
                subscriptions[subscription.id] = (subscription, compile_filter(subscription.filter))
        message = self._moving.outward(app, message)
        # The adapter knows the client, not the application behind it.
        mine = replace(message, source=self._client.address, session=b"")
        if not self._client.mediation.post(mine):
            self._client.session.send_body(mine.kind, mine.priority, encode(mine))
        self._client.counters["relayed"] += 1
        self._client.after_session()

    def _forget(self, app: str) -> None:
        self._set_groups(app, ())
        for subscription, _ in self._subscriptions.pop(app, {}).values():
            self._client.forget(subscription)
        self._client.say_again(self._moving.forget(app))

    def _tick(self) -> None:
        time = now()
        for closed in self.sessions.handle_timer(time):
            self._forget(closed.session.identity)
        due = self.sessions.heartbeats_due(time)
        if len(due):
            body = self.sessions.heartbeat_body(time)
            for slot in due:
                session = self.sessions.table.at(int(slot))
                if session is not None:
                    packet = self.sessions.packet(
                        session, Kind.HEARTBEAT, Priority.BACKGROUND, body, time
                    )
                    self._send([(packet, session.address)])
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _flush(self) -> None:
        self._send(list(self.sessions.outbox))
        self.sessions.outbox.clear()

    def _send(self, packets: Packets) -> None:
        if packets and self._endpoint is not None:
            self._endpoint.send(packets)
