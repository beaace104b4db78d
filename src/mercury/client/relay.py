"""A client's relay for applications on the same device (Mercury §4.6).

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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from mercury.client.messages import compose
from mercury.client.reception import satisfies
from mercury.mediator import Arrival, Incoming
from mercury.model.declarations import WITHDRAW, Declaration, Matches, Withdrawal
from mercury.model.delivery import Deliveries, DeliveryState
from mercury.model.errors import (
    FilterError,
    MessageError,
    MessageTooLargeError,
    NotConnectedError,
    PacketError,
)
from mercury.model.filter import Filter, compile_filter
from mercury.model.identity import new_uuid
from mercury.model.matching import Publication, Side
from mercury.model.message import Address, AddressKind, Kind, Message, Priority, Subscription
from mercury.net import Packets, UdpEndpoint, bind_udp
from mercury.service.clock import epoch_us, now
from mercury.session import AdapterSessions, Closed, Opened, Received, Session, SessionSettings
from mercury.wire import encode, from_envelope
from mercury.wire.packet import TOKEN_BYTES

if TYPE_CHECKING:
    from mercury.client.connection import Connection

log = logging.getLogger(__name__)

_TICK_S = 0.1
_MAX_OPEN_REQUESTS = 10_000
_ANSWERED = (Kind.REQUEST, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE)


class RelayedDeclarations:
    """Separates applications: each may use any names for its declarations.

    To the adapter all are the client's; there each name is prefixed with the application's.
    """

    def __init__(self, client: Address) -> None:
        self._client = client
        self._declared: dict[str, dict[tuple[Side, str], Message]] = {}  # by application

    def __iter__(self) -> Iterator[Message]:
        """All declarations, to be renewed at an adapter that has none of them."""
        for declared in self._declared.values():
            for message in declared.values():
                yield replace(message, id=new_uuid(), source=self._client, session=b"")

    def outward(self, app: str, message: Message) -> Message:
        """An application's message, as the client sends it."""
        payload = message.payload
        if isinstance(payload, Declaration):
            what = payload.what
            side: Side = "publication" if isinstance(what, Publication) else "subscription"
            message = replace(message, payload=Declaration(replace(what, id=f"{app}/{what.id}")))
            self._declared.setdefault(app, {})[side, what.id] = message
        elif isinstance(payload, Withdrawal):
            self._declared.get(app, {}).pop((payload.side, payload.id), None)
            message = replace(message, payload=replace(payload, id=f"{app}/{payload.id}"))
        return message

    def inward(self, app: str, message: Message, matches: Matches) -> Message | None:
        """A received message as one application gets it; None if none of it is for that."""
        begin = f"{app}/"
        rows = tuple(
            row._replace(match=row.match._replace(subscription=name.removeprefix(begin)))
            for row in matches.rows
            if (name := row.match.subscription).startswith(begin)
        )
        return replace(message, payload=Matches(rows)) if rows else None

    def forget(self, app: str) -> list[Message]:
        """An application has disconnected; returns the messages to send to the adapter."""
        return [
            compose(self._client, Kind.REQUEST, WITHDRAW, Withdrawal(side, f"{app}/{id}"))
            for side, id in self._declared.pop(app, {})
        ]


class Relay:
    """Sessions with local applications, on behalf of one client; it listens until it is closed."""

    def __init__(self, client: Connection, port: int) -> None:
        self._client = client
        settings = SessionSettings(require_telemetry=False, max_sessions=1000)
        self.sessions = AdapterSessions(
            client.identity, settings, lambda: secrets.token_bytes(TOKEN_BYTES), epoch_us=epoch_us()
        )
        # message id -> the application that waits for the reply
        self._requests: OrderedDict[UUID | None, str] = OrderedDict()
        self._subscriptions: dict[str, dict[bytes, tuple[Subscription, Filter]]] = {}
        self._unconfirmed: OrderedDict[UUID | None, Subscription] = OrderedDict()  # by request
        self._groups: dict[str, set[str]] = {}  # that applications had the client join
        self._incoming = Incoming()
        self.moving = RelayedDeclarations(client.address)
        sock = bind_udp("127.0.0.1", port)
        self._endpoint: UdpEndpoint | None = UdpEndpoint(sock, self._on_packets)
        self._tick()

    @property
    def port(self) -> int:
        """The loopback port applications connect to."""
        assert self._endpoint is not None
        return self._endpoint.address[1]

    def close(self) -> None:
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

    def deliver(self, message: Message, body: bytes) -> None:
        """Pass a message to the client on to the applications it is for."""
        table = self.sessions.table
        if isinstance(message.payload, Matches) and message.kind is Kind.CONTENT:
            for session in list(table):
                theirs = self.moving.inward(session.identity, message, message.payload)
                if theirs is not None:
                    self._pass_in(session, message.kind, message.priority, encode(theirs))
            return
        apps: Iterable[str | None] = list(table.by_identity)
        if message.kind is Kind.REPLY:
            apps = [self._requests.pop(message.correlation, None)]
            subscription = self._unconfirmed.pop(message.correlation, None)
            if subscription is not None and "error" not in message.values:
                self._client.reception.confirmed(subscription, message.sent_us, now())
        elif isinstance(message.payload, Deliveries):
            apps = [self._requests.get(message.payload.message)]
        elif message.is_for_subscribers:
            here = self._client.position
            apps = [
                app
                for app, subscriptions in self._subscriptions.items()
                if any(satisfies(message, *wanted, here) for wanted in subscriptions.values())
            ]
        for app in apps:
            one = None if app is None else table.by_identity.get(app)
            if one is not None:
                self._pass_in(one, message.kind, message.priority, body)

    def _pass_in(self, session: Session, kind: Kind, priority: int, body: bytes) -> None:
        packet = self.sessions.packet(session, kind, priority, body, now())
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
            except MessageTooLargeError:  # the client's name is longer
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
                return  # answered when the adapter has answered
        if message.kind is Kind.GROUPS:
            self._set_groups(session.identity, event.envelope.groups)
        else:
            self._pass_on(session, message)
        if event.wants_receipt:
            self._client.run(self._answer(session, message))

    async def _answer(self, session: Session, message: Message) -> None:
        """Tell an application the outcome of its message, once the adapter has reported it."""
        state, reason = DeliveryState.ACKNOWLEDGED, ""
        with contextlib.suppress(MessageError):  # no receipt was asked for: it was passed on
            state, reason = await self._client.mediator.taken(message.id)
        if self.sessions.table.by_identity.get(session.identity) is session:
            id, taken = message.id.bytes, state is DeliveryState.ACKNOWLEDGED
            received = [id] if taken else []
            refused = [] if taken else [(id, reason or state.label)]
            body = self.sessions.receipt_body(received, refused, now())
            self._pass_in(session, Kind.RECEIPT, Priority.REPLY, body)

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
                self._unconfirmed[message.id] = subscription
                if len(self._unconfirmed) > _MAX_OPEN_REQUESTS:
                    self._unconfirmed.popitem(last=False)
        message = self.moving.outward(app, message)
        # The adapter knows the client, not the application behind it.
        mine = replace(message, source=self._client.address, session=b"")
        if not self._client.mediator.post(mine):
            self._client.session.send_body(mine.kind, mine.priority, encode(mine))
        self._client.counters["relayed"] += 1
        self._client.after_session()

    def _forget(self, app: str) -> None:
        self._set_groups(app, ())
        for subscription, _ in self._subscriptions.pop(app, {}).values():
            self._client.forget(subscription)
        self._client.say_again(self.moving.forget(app))

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
                    self._pass_in(session, Kind.HEARTBEAT, Priority.BACKGROUND, body)
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _flush(self) -> None:
        self._send(list(self.sessions.outbox))
        self.sessions.outbox.clear()

    def _send(self, packets: Packets) -> None:
        if packets and self._endpoint is not None:
            self._endpoint.send(packets)
