"""The client: the endpoint on the vehicle or device (Mercury §4.6), as a library."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload
from uuid import UUID

from mercury.client.arguments import checked
from mercury.client.asking import Asking
from mercury.client.composing import PositionLike, as_policy, as_position, compose, to_whom
from mercury.client.declaring import Declaring, as_polygon
from mercury.client.inbox import Inbox
from mercury.client.mediation import Mediation
from mercury.client.near import MatchHandler, MatchStream, MovingPublication
from mercury.client.receipts import Receipts
from mercury.client.reception import Reception
from mercury.client.relay import Relay
from mercury.client.subscriptions import ContentStream, Handler, Subscriptions
from mercury.client.uplink import open_uplink
from mercury.config.mediator import MediatorSettings
from mercury.config.mediator import PolicyName as Policy
from mercury.mediator.explain import about_uplink
from mercury.model import topics
from mercury.model.area import Area, Circle, Polygon, Position
from mercury.model.declarations import REQUESTS as ABOUT_MOVING
from mercury.model.delivery import DeliveryState
from mercury.model.errors import (
    MessageError,
    NotConnectedError,
    NotSettledError,
    SessionRefusedError,
)
from mercury.model.matching import Match, NearSubscription, Publication
from mercury.model.message import (
    Address,
    Attributes,
    DeliveryPolicy,
    Event,
    Kind,
    Message,
    Priority,
    Subscription,
    Telemetry,
    Values,
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
from mercury.wire import mercury_pb2

log = logging.getLogger(__name__)

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Client:
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
        self._compose = partial(compose, self.address)
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
                f"no answer from the adapter at {self._uri} within {timeout_s:g} s: does it run?"
            ) from None

    async def close(self) -> None:
        """Say goodbye and let go."""
        if self._endpoint is None:
            return
        if self.relay is not None:
            self.relay.close()
        self.mediation.answer_all()
        self.session.close(now())
        self.mediation.close()
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

    # Said to everybody whom it concerns

    @overload
    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        moving: Literal[False] = False,
        position: PositionLike | None = None,
        priority: int = Priority.CONTENT,
        expires_in_s: float | None = None,
        policy: Policy | DeliveryPolicy = "fire-and-forget",
    ) -> Message: ...

    @overload
    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        moving: Literal[True],
        radius_m: float = 0.0,
        ttl_s: float | None = None,
        name: str | None = None,
    ) -> MovingPublication: ...

    @checked
    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        moving: bool = False,
        position: PositionLike | None = None,
        priority: int = Priority.CONTENT,
        expires_in_s: float | None = None,
        policy: Policy | DeliveryPolicy = "fire-and-forget",
        radius_m: float = 0.0,
        ttl_s: float | None = None,
        name: str | None = None,
    ) -> Message | MovingPublication:
        """Publish content under a topic; `position` ties it to a place.

        With `moving`, say what this client is: others who are near hear of it while it moves, until
        it is withdrawn or the client is gone. Raises MatchingError when that is refused.
        """
        is_tied = position is not None or expires_in_s is not None or policy != "fire-and-forget"
        if moving and is_tied:
            raise MessageError("what moves has no position, expiry or policy of its own")
        if not moving and (radius_m or ttl_s is not None or name is not None):
            raise MessageError("radius_m, ttl_s and name are for what moves: say moving=True")
        if moving:
            name = self.moving.free_name("publication", topic, name)
            return await self.moving.publish(
                Publication(name, topic, dict(values), radius_m, ttl_s)
            )
        topics.content_topic(topic)  # or says what is wrong
        place = None if position is None else as_position(position)
        payload = Attributes(dict(values), place)
        message = self._compose(Kind.CONTENT, topic, payload, priority, expires_in_s)
        return await self._say(replace(message, policy=as_policy(policy)))

    @checked
    async def sense(
        self,
        kind: str,
        *,
        position: PositionLike | None = None,
        radius_m: float | None = None,
        text: str = "",
        values: Values | None = None,
        priority: int = Priority.WARNING,
        expires_in_s: float | None = None,
        policy: Policy | DeliveryPolicy = "fire-and-forget",
    ) -> Message:
        """Publish an event that was sensed, by default where the client is."""
        topics.events_topic(kind)  # or says what is wrong
        place = self.position if position is None else as_position(position)
        telemetry = self.session.telemetry
        speed = telemetry.speed_mps if telemetry else None
        event = Event(kind, place, radius_m, speed, text, dict(values or {}))
        message = self._compose(Kind.EVENT, "", event, priority, expires_in_s)
        return await self._say(replace(message, policy=as_policy(policy)))

    @checked
    async def tell(
        self,
        to: str | Address | Area | None,
        values: Values,
        *,
        topic: str = "message",
        within_m: float | None = None,
        policy: Policy | DeliveryPolicy = "repeat",
        priority: int = Priority.NORMAL,
        expires_in_s: float = 600.0,
        ordered: bool = False,
    ) -> Receipts:
        """Tell other clients: one by name, a group, those in an area, or all `within_m` of here.

        What becomes of it is reported, client by client: `await receipts.settled()`.
        """
        topics.content_topic(topic)  # or says what is wrong
        destination = to_whom(to, within_m, self.position)
        if destination == self.address:
            raise MessageError(f"{self.address.name} cannot tell itself")
        if priority > Priority.WARNING:
            raise MessageError(f"a client tells with a priority up to {Priority.WARNING:d}")
        message = self._compose(
            Kind.CONTENT, topic, Attributes(dict(values)), priority, expires_in_s
        )
        message = replace(
            message, destination=destination, policy=as_policy(policy), ordered=ordered
        )
        receipts = Receipts(message)
        self.reception.expect(receipts)
        await self._say(message)
        return receipts

    @checked
    async def taken(self, message: Message, timeout_s: float | None = None) -> DeliveryState:
        """Wait until the adapter has a message for sure, or it is certain that it never will.

        For what is worth repeating; raises NotSettledError, which is a TimeoutError.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return (await self.mediation.taken(message.id)).state
        except TimeoutError:
            raise NotSettledError(
                f"the adapter has not answered message {message.id} within {timeout_s:g} s"
            ) from None

    @checked
    async def join(self, *groups: str) -> None:
        """Be in these groups, too, from now on."""
        self.regroup(joined=groups)

    @checked
    async def leave(self, *groups: str) -> None:
        """Be in these groups no more."""
        self.regroup(left=groups)

    @checked
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
        topics.content_topic(topic)  # or says what is wrong
        return await self._subscriptions.subscribe(
            topic, where, near_m, handler, self._unsubscribe, timeout_s
        )

    @checked
    def near(
        self,
        topic: str,
        *,
        radius_m: float | None = None,
        where: str = "",
        inside: bool = False,
        dwell_s: float | None = None,
        polygon: Polygon | Sequence[PositionLike] | None = None,
        hysteresis_m: float | None = None,
        name: str | None = None,
        handler: MatchHandler | None = None,
        timeout_s: float = 5.0,
    ) -> MatchStream:
        """Hear what comes near and leaves: `async for match in client.near("taxi", radius_m=500)`.

        The circle moves with the client; a polygon, or its corners, stays where it is. Raises
        MatchingError and FilterError for what cannot be; a refusal is raised by the iteration.

        Arguments:
            inside: hear also of every move of what is inside.
            dwell_s: hear also of what has been inside for so long.
            name: what the client calls it; none is the topic.
        """
        name = self.moving.free_name("subscription", topic, name)
        scope = radius_m, as_polygon(polygon)
        what = NearSubscription(name, topic, *scope, where, inside, dwell_s, hysteresis_m)
        return self.moving.near(what, handler, timeout_s)

    @checked
    async def ask_near(
        self,
        topic: str,
        *,
        radius_m: float | None = None,
        where: str = "",
        polygon: Polygon | Sequence[PositionLike] | None = None,
        limit: int = 20,
        timeout_s: float = 5.0,
    ) -> list[Match]:
        """Ask once what is near, or in a polygon: the nearest first."""
        subscription = NearSubscription("?", topic, radius_m, as_polygon(polygon), where)
        return await self.moving.ask(subscription, limit, timeout_s)

    @checked
    async def query(
        self, place: Area | PositionLike, radius_m: float = 1000.0, timeout_s: float = 5.0
    ) -> list[dict[str, Any]]:
        """Ask what is going on in an area, or around a place."""
        area = place if isinstance(place, Area) else Area(Circle(as_position(place), radius_m))
        message = self._compose(Kind.REQUEST, "conditions", Attributes())
        message = replace(message, destination=Address.to_area(area))
        values = (await self._asking.confirm(message, timeout_s)).values
        found: list[dict[str, Any]] = json.loads(str(values["conditions"]))
        return found

    @checked
    async def echo(self, timeout_s: float = 5.0) -> float:
        """Send a message to the broker and back; returns the round trip in seconds."""
        begun = now()
        await self.request("echo", {}, timeout_s=timeout_s)
        return now() - begun

    @checked
    async def request(
        self, topic: str, values: Values, *, timeout_s: float = 5.0, retry_s: float | None = None
    ) -> Message:
        """Send a request to the brokers and wait for the reply.

        Raises RequestError when it is refused or not answered in time.
        """
        if topic in ABOUT_MOVING:
            raise MessageError(f"{topic!r} is reserved: use publish, near and ask_near")
        message = self._compose(Kind.REQUEST, topic, Attributes(dict(values)))
        return await self._asking.confirm(message, timeout_s, retry_s)

    @checked
    async def why(self, id: UUID | str, timeout_s: float = 10.0) -> str:
        """Say what became of a message of the last hour that this client sent, or was to hear.

        Times of day are in UTC. Raises RequestError where nobody knows.
        """
        outcome = self.mediation.outcome(UUID(str(id)))
        if outcome is not None and outcome.state is not DeliveryState.ACKNOWLEDGED:
            return about_uplink(*outcome)
        reply = await self.request("why", {"message": str(id)}, timeout_s=timeout_s, retry_s=2.0)
        return str(reply.values["answer"])

    @checked
    async def send(self, message: Message) -> None:
        """Send a message as it is, once there is a session."""
        await self._established.wait()
        self.session.send(message)
        self.counters["sent"] += 1
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

    async def _say(self, message: Message) -> Message:
        if self.session.state is SessionState.IDLE:
            raise NotConnectedError(f"{self.identity} is not open: use `async with`")
        if self.session.state is SessionState.CLOSED:
            raise NotConnectedError(f"{self.identity} was closed")
        if self.mediation.post(message):
            self.counters["sent"] += 1
            self.after_session()
        else:
            await self.send(message)
        return message

    async def _unsubscribe(self, subscription: Subscription) -> None:
        if self.reception.streams.pop(subscription.id, None):
            self.forget(subscription)

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

    def forget(self, subscription: Subscription) -> None:
        """Tell the adapter that a subscription is no more; without a session it knows of none."""
        self.say_again([self._compose(Kind.UNSUBSCRIBE, subscription.topic, subscription)])

    def say_again(self, messages: Iterable[Message]) -> None:
        """Send what applications have said, while there is a session to say it in."""
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
                    self.mediation.answered(event)
                    self.reception.taken(event.received)
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
