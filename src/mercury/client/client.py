"""The client: the endpoint on the vehicle or device (Mercury §4.6), as a library."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from mercury.client.arguments import checked
from mercury.client.asking import Asking
from mercury.client.composing import PositionLike, as_position
from mercury.client.declaring import Declaring
from mercury.client.inbox import Inbox
from mercury.client.mediation import Mediation
from mercury.client.reception import Reception
from mercury.client.relay import Relay
from mercury.client.subscriptions import Handler, Subscriptions
from mercury.client.uplink import open_uplink
from mercury.client.verbs import Verbs
from mercury.config.mediator import MediatorSettings
from mercury.model.area import Position
from mercury.model.errors import NotConnectedError, SessionRefusedError
from mercury.model.message import (
    Address,
    Kind,
    Message,
    Telemetry,
)
from mercury.net import Link, LinkedEndpoint, Packets, UdpEndpoint, link_from
from mercury.service.clock import epoch_us, now, now_us
from mercury.session import (
    AdapterAnswered,
    ClientSession,
    Delivered,
    Established,
    Lost,
    Refused,
    SessionSettings,
    SessionState,
)

log = logging.getLogger(__name__)

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Client(Verbs):
    """A session with an adapter, or with a client's relay: `async with connect(...) as client`.

    Iterating over the client yields what is addressed to it: alerts for where it is, broadcasts,
    messages to it alone. Content arrives at the subscription that asked for it.

    Arguments:
        uri: the adapter, `udp://host:port`.
        identity: the client's name, unique among all clients.
        position: where it is, a Position or (lat, lon). An application behind a relay has none.
        relay_port: listen there on loopback for local applications; 0 takes a free port.
        mediator: how much trouble which message is worth.
        groups: the groups it is in; `join` and `leave` change them.
        link: for trials, a lossy link that everything goes through, such as "cellular,loss=0.1".
    """

    @checked
    def __init__(
        self,
        uri: str,
        *,
        identity: str,
        position: PositionLike | None = None,
        heading_deg: float | None = None,
        speed_mps: float | None = None,
        settings: SessionSettings | None = None,
        relay_port: int | None = None,
        connect_timeout_s: float = 10.0,
        seed: int | None = None,
        mediator: MediatorSettings | None = None,
        groups: Collection[str] = (),
        link: Link | str | None = None,
    ) -> None:
        self.identity = identity
        self.address = Address.client(identity)
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.relay: Relay | None = None
        self.link = None if link is None else link_from(link, seed)
        self._uri = uri
        self._relay_port = relay_port
        self._connect_timeout_s = connect_timeout_s
        telemetry = None
        if position is not None:
            telemetry = Telemetry(as_position(position), heading_deg, speed_mps, time_us=now_us())
        self.session = ClientSession(
            identity,
            settings or SessionSettings(),
            random.Random(os.urandom(8) if seed is None else seed),
            telemetry=telemetry,
            epoch_us=epoch_us(),
        )
        self.session.groups.update(groups)
        mediator = mediator or MediatorSettings()
        self.mediation = Mediation(
            self.session,
            mediator.policies(),
            ack_after_s=mediator.ack_after_s,
            epoch_us=epoch_us(),
            now=now,
        )
        self.reception = Reception(
            self.session, self.mediation, self.counters, self.dropped, self.run
        )
        self._asking = Asking(self.send, self.reception.replies)
        self._subscriptions = Subscriptions(
            identity, self.reception.streams, self._asking, self._compose, self.run
        )
        self.moving = Declaring(
            identity, self._asking, self._compose, self.run, self.reception.call, self.dropped
        )
        self.reception.moving = self.moving
        self._established = asyncio.Event()
        self._refusal: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # what it was set for
        self._tasks: set[asyncio.Task[Any]] = set()
        self._endpoint: UdpEndpoint | LinkedEndpoint | None = None
        self._adapter = b""

    # Opening and closing

    async def __aenter__(self) -> Self:
        try:
            await self.open()
            await self.connected(self._connect_timeout_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin to seek a session, without waiting for it."""
        self._endpoint, self._adapter = open_uplink(self._uri, self._on_packets, self.link)
        if self._relay_port is not None:
            self.relay = self.reception.relay = Relay(self, self._relay_port)
            self.relay.open()
        self.session.start(now())
        self.after_session()

    @checked
    async def connected(self, timeout_s: float | None = None) -> None:
        """Wait until there is a session."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._established.wait()
        except TimeoutError:
            if self._refusal is not None:
                raise SessionRefusedError(self._refusal) from None
            raise NotConnectedError(
                f"no answer from the adapter at {self._uri} within {timeout_s:g} s"
            ) from None

    async def close(self) -> None:
        """Say goodbye and let go."""
        if self._endpoint is None:
            return
        if self.relay is not None:
            self.relay.close()
        self.session.close(now())
        self.after_session()
        if self._timer is not None:
            self._timer.cancel()
        self._endpoint.close()
        self._endpoint = None
        self.reception.close()
        tasks = self._tasks - {asyncio.current_task()}  # a handler may be the one who closes
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reply in self.reception.replies.values():
            if not reply.done():
                reply.set_exception(NotConnectedError(f"{self.identity} was closed"))

    @property
    def inbox(self) -> Inbox:
        """What is addressed to this client and nobody has taken yet."""
        return self.reception.inbox

    # Where it is

    @checked
    def move(
        self,
        lat: float,
        lon: float,
        *,
        heading_deg: float | None = None,
        speed_mps: float | None = None,
        accuracy_m: float | None = None,
        altitude_m: float | None = None,
        report: bool = False,
    ) -> None:
        """Say where the client is now; it goes out with the next report, or at once."""
        self.session.telemetry = Telemetry(
            Position(lat, lon), heading_deg, speed_mps, accuracy_m, altitude_m, now_us()
        )
        self.reception.moved(now_us())
        if report:
            if self.session.state is not SessionState.ESTABLISHED:
                raise NotConnectedError(f"{self.identity} has no session now")
            self.session.report(now())
            self.after_session()

    # What it hears

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.inbox.__aiter__()

    @checked
    def on(self, kind: Kind | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Decorate a function, plain or async, that is called with what the client hears.

        Replies and receipts go to who waits for them, and to no handler.
        """

        def register(handler: AnyHandler) -> AnyHandler:
            self.reception.handlers.append((kind, handler))
            return handler

        return register

    # Inside

    def _on_packets(self, packets: Packets) -> None:
        time = now()
        for data, _address in packets:
            self.session.receive(data, time)
        self.after_session()

    def after_session(self) -> None:
        session = self.session
        while session.events:
            event = session.events.popleft()
            match event:
                case Delivered():
                    self.reception.deliver(event, now_us())
                case AdapterAnswered():
                    self.mediation.answered(event)
                case Established():
                    if session.sessions_opened > 1:
                        log.info("%s is connected again", self.identity)
                    self._refusal = None
                    self.mediation.connected()
                    self._established.set()
                    self._subscriptions.renew(self.relay.subscriptions() if self.relay else ())
                    self.moving.connected()
                    self.say_again(self.relay.declarations() if self.relay else ())
                case Lost():
                    log.info("%s lost its session (%s)", self.identity, event.reason)
                    self.mediation.disconnected()
                    self._established.clear()
                case Refused():
                    self._refusal = event.reason
        for id, outcome in self.mediation.work():
            self.reception.settled(id, outcome)
        if session.outbox and self._endpoint is not None:
            self._endpoint.send([(packet, self._adapter) for packet in session.outbox])
            session.outbox.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        parts = (self.session, self.mediation, self.moving)
        times = [part.next_timer() for part in parts]
        due = min((at for at in times if at is not None), default=None)
        if self._timer is not None:
            if due is not None and self._timer_due <= due:
                return  # wakes early enough, and then sets the timer anew
            self._timer.cancel()
            self._timer = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - now()), self._on_timer)
            self._timer_due = due

    def _on_timer(self) -> None:
        self._timer = None
        self.session.handle_timer(now())
        self.moving.handle_timer()
        self.after_session()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest, until the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
