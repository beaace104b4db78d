"""The client: the endpoint on the vehicle or device (Mercury §4.6), as a library."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from mercury.client.asking import Asking
from mercury.client.composing import Place, as_position, compose, to_whom
from mercury.client.inbox import Inbox
from mercury.client.mediation import Mediation
from mercury.client.reception import Reception
from mercury.client.relay import Relay
from mercury.client.subscriptions import ContentStream, Handler
from mercury.client.told import Told
from mercury.config.mediator import MediatorSettings
from mercury.config.mediator import PolicyName as Policy
from mercury.mediator import NAMES
from mercury.model.area import Area, Circle, Position
from mercury.model.delivery import DeliveryState
from mercury.model.errors import (
    MercuryError,
    NotConnectedError,
    SessionRefusedError,
)
from mercury.model.filter import compile_filter
from mercury.model.identity import new_id
from mercury.model.message import (
    Address,
    Attributes,
    DeliveryPolicy,
    Event,
    Kind,
    Message,
    Payload,
    Priority,
    Subscription,
    Telemetry,
    Values,
)
from mercury.net import (
    Link,
    LinkedEndpoint,
    Packets,
    UdpEndpoint,
    bind_udp,
    link_from,
    open_endpoint,
    parse_udp_uri,
    resolve,
)
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
from mercury.wire import mercury_pb2

log = logging.getLogger(__name__)

_RENEW_S = 30.0
_SOCKET_BUFFER_BYTES = 256 * 1024

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Client:
    """A session with an adapter, and everything an application does with it.

    Iterating over the client yields what is addressed to it: alerts for where it is, broadcasts,
    messages to it alone. Content arrives at the subscription that asked for it.
    """

    def __init__(
        self,
        uri: str,
        *,
        identity: str,
        position: Place | None,
        heading_deg: float | None = None,
        speed_mps: float | None = None,
        settings: SessionSettings | None = None,
        relay_port: int | None = None,
        connect_timeout_s: float = 10.0,
        seed: int | None = None,
        mediator: MediatorSettings | None = None,
        groups: Iterable[str] = (),
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
        self._established = asyncio.Event()
        self._refusal: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # what it was set for
        self._tasks: set[asyncio.Task[Any]] = set()
        self._endpoint: UdpEndpoint | LinkedEndpoint | None = None
        self._adapter = b""

    # Life

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
        host, port = parse_udp_uri(self._uri)
        family, self._adapter = resolve(host, port)
        any_host = "::" if ":" in host or family.name == "AF_INET6" else "0.0.0.0"
        local = {"127.0.0.1": "127.0.0.1", "localhost": any_host}.get(host, any_host)
        sock = bind_udp(local, 0, buffer_bytes=_SOCKET_BUFFER_BYTES)
        self._endpoint = open_endpoint(sock, self._on_packets, self.link)
        if self._relay_port is not None:
            self.relay = self.reception.relay = Relay(self, self._relay_port)
            self.relay.open()
        self.session.start(now())
        self.after_session()

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

    @property
    def position(self) -> Position | None:
        """Where the client says it is."""
        telemetry = self.session.telemetry
        return telemetry.position if telemetry else None

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

    # What it says

    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        position: Place | None = None,
        priority: int = Priority.CONTENT,
        expires_in_s: float | None = None,
        policy: Policy = "fire-and-forget",
    ) -> Message:
        """Publish content under a topic; `position` ties it to a place."""
        place = None if position is None else as_position(position)
        payload = Attributes(dict(values), place)
        message = self._compose(Kind.CONTENT, topic, payload, priority, expires_in_s)
        return await self._say(replace(message, policy=NAMES[policy]))

    async def sense(
        self,
        kind: str,
        *,
        position: Place | None = None,
        radius_m: float | None = None,
        text: str = "",
        values: Values | None = None,
        priority: int = Priority.WARNING,
        expires_in_s: float | None = None,
        policy: Policy = "fire-and-forget",
    ) -> Message:
        """Publish an event that was sensed, by default where the client is."""
        place = self.position if position is None else as_position(position)
        telemetry = self.session.telemetry
        speed = telemetry.speed_mps if telemetry else None
        event = Event(kind, place, radius_m, speed, text, dict(values or {}))
        message = self._compose(Kind.EVENT, "", event, priority, expires_in_s)
        return await self._say(replace(message, policy=NAMES[policy]))

    async def tell(
        self,
        to: str | Address | Area | None,
        values: Values,
        *,
        topic: str = "message",
        within_m: float | None = None,
        policy: Policy = "repeat",
        priority: int = Priority.NORMAL,
        expires_in_s: float = 600.0,
        ordered: bool = False,
    ) -> Told:
        """Tell other clients: one by name, a group, those in an area, or all `within_m` of here.

        What becomes of it is reported, client by client: `await told.settled()`.
        """
        message = self._compose(
            Kind.CONTENT, topic, Attributes(dict(values)), priority, expires_in_s
        )
        message = replace(
            message,
            destination=to_whom(to, within_m, self.position),
            policy=NAMES[policy],
            ordered=ordered,
        )
        told = Told(message)
        self.reception.expect(told)
        await self._say(message)
        return told

    async def taken(self, message: Message, timeout_s: float | None = None) -> DeliveryState:
        """Wait until the adapter has a message for sure, or it is certain that it never will.

        For what is worth repeating; raises TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            return await self.mediation.taken(message.id)

    async def join(self, *groups: str) -> None:
        """Be in these groups, too, from now on."""
        self.regroup(joined=groups)

    async def leave(self, *groups: str) -> None:
        """Be in these groups no more."""
        self.regroup(left=groups)

    async def subscribe(
        self,
        topic: str,
        *,
        where: str = "",
        near_m: float | None = None,
        handler: Handler | None = None,
        timeout_s: float = 5.0,
    ) -> ContentStream:
        """Ask for content of a topic: those whose values satisfy `where`, near me if `near_m`.

        Raises FilterError for a filter that does not parse and RequestError when refused.
        """
        content_filter = compile_filter(where)
        wish = Subscription(new_id(), topic, where, near_m)
        stream = ContentStream(wish, content_filter, self._unsubscribe, handler)
        self.reception.streams[wish.id] = stream
        try:
            await self._asking.confirm(self._compose(Kind.SUBSCRIBE, topic, wish), timeout_s)
        except BaseException:
            self.reception.streams.pop(wish.id, None)
            raise
        return stream

    async def query(
        self, place: Area | Place, radius_m: float = 1000.0, timeout_s: float = 5.0
    ) -> list[dict[str, Any]]:
        """Ask what is going on in an area, or around a place."""
        area = place if isinstance(place, Area) else Area(Circle(as_position(place), radius_m))
        message = self._compose(Kind.REQUEST, "conditions", Attributes())
        message = replace(message, destination=Address.to_area(area))
        values = (await self._asking.confirm(message, timeout_s)).values
        found: list[dict[str, Any]] = json.loads(str(values["conditions"]))
        return found

    async def echo(self, timeout_s: float = 5.0) -> float:
        """Send a message to the broker and back; returns the round trip in seconds."""
        begun = now()
        await self.request("echo", {}, timeout_s=timeout_s)
        return now() - begun

    async def request(
        self, topic: str, values: Values, *, timeout_s: float = 5.0, retry_s: float | None = None
    ) -> Message:
        """Send a request to the brokers and wait for the reply."""
        message = self._compose(Kind.REQUEST, topic, Attributes(dict(values)))
        return await self._asking.ask(message, timeout_s, retry_s)

    async def send(self, message: Message) -> None:
        """Send a message as it is, once there is a session."""
        await self._established.wait()
        self.session.send(message)
        self.counters["sent"] += 1
        self.after_session()

    # What it hears

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.inbox.__aiter__()

    def on(self, kind: Kind | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Decorate a function, plain or async, that is to be called with messages of a kind."""

        def register(handler: AnyHandler) -> AnyHandler:
            self.reception.handlers.append((kind, handler))
            return handler

        return register

    # Inside

    async def _say(self, message: Message) -> Message:
        if self.mediation.post(message):
            self.counters["sent"] += 1
            self.after_session()
        else:
            await self.send(message)
        return message

    def regroup(self, joined: Iterable[str] = (), left: Iterable[str] = ()) -> None:
        """Change the groups the client is in; the adapter hears of it for sure."""
        self.session.groups.difference_update(left)
        self.session.groups.update(joined)
        message = self._compose(Kind.GROUPS, "", None)
        self.mediation.post(
            replace(message, policy=DeliveryPolicy.CRITICAL),
            mercury_pb2.Envelope(groups=sorted(self.session.groups)).SerializeToString(),
        )
        self.after_session()

    def _compose(
        self,
        kind: Kind,
        topic: str,
        payload: Payload,
        priority: int = Priority.NORMAL,
        expires_in_s: float | None = None,
    ) -> Message:
        return compose(self.address, kind, topic, payload, priority, expires_in_s)

    async def _unsubscribe(self, wish: Subscription) -> None:
        if self.reception.streams.pop(wish.id, None):
            self.forget(wish)

    def forget(self, wish: Subscription) -> None:
        """Tell the adapter that a wish is no more; without a session it knows of none."""
        if self.session.state is SessionState.ESTABLISHED:
            self.session.send(self._compose(Kind.UNSUBSCRIBE, wish.topic, wish))
            self.after_session()

    def _on_packets(self, packets: Packets) -> None:
        time = now()
        for data, _address in packets:
            self.session.receive(data, time)
        self.after_session()

    def after_session(self) -> None:
        """Do what the core decided: send, tell, set the timer."""
        session = self.session
        while session.events:
            event = session.events.popleft()
            match event:
                case Delivered():
                    self.reception.deliver(event, now_us())
                case AdapterAnswered():
                    self.mediation.answered(event)
                case Established():
                    self._refusal = None
                    self.mediation.connected()
                    self._established.set()
                    self._renew_subscriptions()
                case Lost():
                    log.info("%s lost its session (%s)", self.identity, event.reason)
                    self.mediation.disconnected()
                    self._established.clear()
                case Refused():
                    self._refusal = event.reason
        self.mediation.work()
        if session.outbox and self._endpoint is not None:
            self._endpoint.send([(packet, self._adapter) for packet in session.outbox])
            session.outbox.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        times = (self.session.next_timer(), self.mediation.next_timer())
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
        self.after_session()

    def _renew_subscriptions(self) -> None:
        wishes = [stream.wish for stream in self.reception.streams.values()]
        if self.relay is not None:
            wishes += self.relay.wishes()
        for wish in wishes:
            self.run(self._renew(wish))

    async def _renew(self, wish: Subscription) -> None:
        try:
            await self._asking.confirm(self._compose(Kind.SUBSCRIBE, wish.topic, wish), _RENEW_S)
        except MercuryError as error:
            log.warning("%s could not renew %r: %s", self.identity, wish.topic, error)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest, until the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
