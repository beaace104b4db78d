"""A client's session with its adapter, kept up under asyncio: the socket, the timer, the tasks."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

from mercury.client.arguments import checked
from mercury.client.declaring import Declaring
from mercury.client.mediator import ClientMediator
from mercury.client.messages import RETRY_S, compose
from mercury.client.reception import Reception
from mercury.client.relay import Relay
from mercury.config.mediator import MediatorSettings
from mercury.model.area import Position
from mercury.model.delivery import ASKED, MAX_ASKED, RECEIPTS
from mercury.model.errors import MercuryError, NotConnectedError, RequestError, SessionRefusedError
from mercury.model.message import (
    Address,
    Attributes,
    DeliveryPolicy,
    Kind,
    Message,
    Subscription,
)
from mercury.net import Link, Packets, UdpEndpoint, open_uplink
from mercury.net.timer import Timer
from mercury.service.clock import now, now_us
from mercury.session import (
    AdapterAnswered,
    ClientSession,
    Delivered,
    Established,
    Lost,
    Refused,
    SessionState,
)
from mercury.wire import mercury_pb2

log = logging.getLogger(__name__)

_RENEW_S = 30.0
_FOLLOW_UP_S = 2.0  # until receipts are asked for, the first time
_FOLLOW_UP_MAX_S = 60.0


class Connection:
    """Runs the cores of a client; the public methods are in `Client`."""

    def __init__(
        self,
        uri: str,
        session: ClientSession,
        mediator: MediatorSettings,
        link: Link | None,
        relay_port: int | None,
        connect_timeout_s: float,
    ) -> None:
        self.identity = session.identity
        self.address = Address.client(session.identity)
        self.compose = partial(compose, self.address)
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.relay: Relay | None = None
        self.link = link
        self.session = session
        self.mediator = ClientMediator(session, mediator)
        self.reception = Reception(self)
        self.moving = Declaring(self)
        self._uri = uri
        self._relay_port = relay_port
        self._connect_timeout_s = connect_timeout_s
        self._established = asyncio.Event()
        self._refusal: tuple[str, str] | None = None  # reason, in words
        self._follow_up: asyncio.Task[None] | None = None
        self._reconnected = asyncio.Event()
        self._timer = Timer(self._on_timer, now)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._endpoint: UdpEndpoint | None = None
        self._adapter = b""

    async def __aenter__(self) -> Self:
        try:
            await self.open()
            await self.connected(self._connect_timeout_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start to open a session, without waiting for it."""
        self._endpoint, self._adapter = open_uplink(self._uri, self._on_packets, self.link)
        if self._relay_port is not None:
            self.relay = Relay(self, self._relay_port)
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
                raise SessionRefusedError(*self._refusal) from None
            raise NotConnectedError(
                f"no answer from the adapter at {self._uri} within {timeout_s:g} s: does it run?"
            ) from None

    async def close(self) -> None:
        """Close the session and the socket."""
        if self._endpoint is None:
            return
        if self.relay is not None:
            self.relay.close()
        self.mediator.close()
        self.session.close(now())
        self.after_session()
        self._timer.cancel()
        self._endpoint.close()
        self._endpoint = None
        self.reception.close()
        self.moving.close()
        tasks = self._tasks - {asyncio.current_task()}  # a handler may call close
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reply in self.reception.replies.values():
            if not reply.done():
                reply.set_exception(NotConnectedError(f"{self.identity} was closed"))

    @property
    def position(self) -> Position | None:
        """The position that the client reports."""
        telemetry = self.session.telemetry
        return telemetry.position if telemetry else None

    @checked
    async def send(self, message: Message) -> None:
        """Send a message unchanged, once there is a session."""
        await self._established.wait()
        self.session.send(message)
        self.counters["sent"] += 1
        self.after_session()

    async def ask(
        self, message: Message, timeout_s: float, retry_s: float | None = RETRY_S
    ) -> Message:
        """Send a request, retry it, and wait for the reply, which may be a refusal."""
        replies = self.reception.replies
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        replies[message.id] = reply
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self.send(message)
                    done, _ = await asyncio.wait([reply], timeout=retry_s)
                    if done:
                        return reply.result()
        except TimeoutError:
            what = message.topic or message.kind.name.lower()
            raise RequestError(f"no reply to {what!r} within {timeout_s:g} s") from None
        finally:
            replies.pop(message.id, None)

    async def confirm(
        self, message: Message, timeout_s: float, retry_s: float | None = RETRY_S
    ) -> Message:
        """Send a request; raises if it is refused."""
        reply = await self.ask(message, timeout_s, retry_s)
        if "error" in reply.values:
            raise RequestError(str(reply.values["error"]))
        return reply

    async def _say(self, message: Message) -> Message:
        if self.session.state is SessionState.IDLE:
            raise NotConnectedError(f"{self.identity} is not open: use `async with`")
        if self.session.state is SessionState.CLOSED:
            raise NotConnectedError(f"{self.identity} was closed")
        if self.mediator.post(message):
            self.counters["sent"] += 1
            self.after_session()
        else:
            await self.send(message)
        return message

    async def _subscribe(self, subscription: Subscription, timeout_s: float) -> None:
        message = self.compose(Kind.SUBSCRIBE, subscription.topic, subscription)
        reply = await self.confirm(message, timeout_s)
        self.reception.confirmed(subscription, reply.sent_us, now())

    async def _renew(self, subscription: Subscription) -> None:
        try:
            await self._subscribe(self.reception.renewed(subscription), _RENEW_S)
        except MercuryError as error:
            log.warning("%s could not renew %r: %s", self.identity, subscription.topic, error)

    # For its parts

    def regroup(self, joined: Iterable[str] = (), left: Iterable[str] = ()) -> None:
        """Change the groups the client is in; sent reliably to the adapter."""
        self.session.groups.difference_update(left)
        self.session.groups.update(joined)
        message = self.compose(Kind.GROUPS, "", None)
        self.mediator.post(
            replace(message, policy=DeliveryPolicy.CRITICAL),
            mercury_pb2.Envelope(groups=sorted(self.session.groups)).SerializeToString(),
        )
        self.after_session()

    def follow_up(self) -> None:
        """Ask the adapter for receipts that do not come by themselves."""
        if self._follow_up is None or self._follow_up.done():
            self._follow_up = self.run(self._ask_for_receipts())

    async def _ask_for_receipts(self) -> None:
        # They are lost when they fall due while this client or its adapter is away.
        wait_s = _FOLLOW_UP_S
        while self.reception.unsettled():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._reconnected.wait()
            wait_s = min(2 * wait_s, _FOLLOW_UP_MAX_S)
            if self._reconnected.is_set():
                self._reconnected.clear()
                wait_s = _FOLLOW_UP_S
            await self._established.wait()
            ids = [id.bytes for id in self.reception.unsettled()]
            for first in range(0, len(ids), MAX_ASKED):
                asked = b"".join(ids[first : first + MAX_ASKED])
                request = self.compose(Kind.REQUEST, RECEIPTS, Attributes({ASKED: asked}))
                with suppress(RequestError):  # asked again later
                    await self.ask(request, _FOLLOW_UP_S, retry_s=None)

    def forget(self, subscription: Subscription) -> None:
        """End a subscription at the adapter; without a session there is none."""
        self.reception.forget(subscription)
        self.say_again([self.compose(Kind.UNSUBSCRIBE, subscription.topic, subscription)])

    def say_again(self, messages: Iterable[Message]) -> None:
        """Declare again what relayed applications have declared, if there is a session."""
        if self.session.state is SessionState.ESTABLISHED:
            for message in messages:
                self.session.send(message)
            self.after_session()

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
                    self.mediator.answered(event)
                    self.reception.taken(event.received)
                case Established():
                    if session.sessions_opened > 1:
                        log.info("%s is connected again", self.identity)
                        self._reconnected.set()
                    self._refusal = None
                    self.mediator.connected()
                    self._established.set()
                    self._connected()
                case Lost(reason):
                    say = log.warning if reason == "displaced" else log.info
                    say("%s lost its session: %s", self.identity, session.in_words(reason))
                    self.mediator.disconnected()
                    self.reception.disconnected(session.heard_at)
                    self._established.clear()
                case Refused():
                    self._refusal = event.reason, session.in_words(event.reason)
        for id, outcome in self.mediator.work():
            self.reception.settled(id, outcome)
        if session.outbox and self._endpoint is not None:
            self._endpoint.send([(packet, self._adapter) for packet in session.outbox])
            session.outbox.clear()
        parts = (self.session, self.mediator, self.moving.entities)
        times = [part.next_timer() for part in parts]
        self._timer.set(min((at for at in times if at is not None), default=None))

    def _connected(self) -> None:
        """Renew subscriptions and declarations in a new session."""
        wanted = [stream.subscription for stream in self.reception.streams.values()]
        if self.relay is not None:
            wanted += self.relay.subscriptions()
        for subscription in wanted:
            self.run(self._renew(subscription))
        self.moving.connected()
        if self.relay is not None:
            self.say_again(self.relay.moving)

    def _on_timer(self) -> None:
        self.session.handle_timer(now())
        self.moving.handle_timer()
        self.after_session()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background, until the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
