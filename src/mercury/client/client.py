"""The client: the endpoint on the vehicle or device (Mercury §4.6), as a library."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from mercury.client.arguments import checked
from mercury.client.connection import Connection
from mercury.client.declaring import MatchHandler, MatchStream, MovingPublication
from mercury.client.messages import PositionLike, as_policy, as_polygon, as_position, to_whom
from mercury.client.receipts import Receipts
from mercury.client.reception import ContentStream, Handler, Inbox
from mercury.config.mediator import MediatorSettings
from mercury.config.mediator import PolicyName as Policy
from mercury.mediator.explain import about_uplink
from mercury.model import topics
from mercury.model.area import Area, Circle, Polygon, Position
from mercury.model.declarations import REQUESTS as ABOUT_MOVING
from mercury.model.delivery import DeliveryState
from mercury.model.errors import MessageError, NotConnectedError, NotSettledError
from mercury.model.identity import new_id
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
from mercury.net import Link, link_from
from mercury.service.clock import epoch_us, now, now_us
from mercury.session import ClientSession, SessionSettings, SessionState

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Client(Connection):
    """A session with an adapter, or with a client's relay: `async with connect(...) as client`.

    Iterating over the client yields what is addressed to it: alerts for where it is, broadcasts,
    messages to it alone. Content arrives at the subscription that asked for it.

    Arguments:
        uri: the adapter, `udp://host:port`.
        identity: the client's name, unique among all clients.
        position: where it is, a Position or (lat, lon). An application behind a relay has none.
        heading_deg: where it goes from there, clockwise from north.
        speed_mps: how fast.
        settings: intervals and limits of the session.
        relay_port: listen there on loopback for local applications; 0 takes a free port.
        connect_timeout_s: `async with` raises NotConnectedError after this time without a session.
        seed: of the dice for waits and `link`; the same seed, the same waits and losses.
        mediator: delivery policy by kind and topic.
        groups: the groups it is in; `join` and `leave` change them.
        link: for tests, a lossy link that all packets go through, such as "cellular,loss=0.1".
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
        telemetry = None
        if position is not None:
            telemetry = Telemetry(as_position(position), heading_deg, speed_mps, time_us=now_us())
        session = ClientSession(
            identity,
            settings or SessionSettings(),
            random.Random(os.urandom(8) if seed is None else seed),
            telemetry=telemetry,
            epoch_us=epoch_us(),
        )
        session.groups.update(groups)
        link = None if link is None else link_from(link, seed)
        mediator = mediator or MediatorSettings()
        super().__init__(uri, session, mediator, link, relay_port, connect_timeout_s)

    # Position

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
        """Set the client's position; it goes out with the next report, or at once."""
        self.session.telemetry = Telemetry(
            Position(lat, lon), heading_deg, speed_mps, accuracy_m, altitude_m, now_us()
        )
        self.reception.moved(now_us())
        if report:
            if self.session.state is not SessionState.ESTABLISHED:
                raise NotConnectedError(f"{self.identity} has no session now")
            self.session.report(now())
            self.after_session()

    # Publishing

    @checked
    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        position: PositionLike | None = None,
        priority: int = Priority.CONTENT,
        expires_in_s: float | None = None,
        policy: Policy | DeliveryPolicy = "fire-and-forget",
    ) -> Message:
        """Publish content under a topic; `position` ties it to a place."""
        topics.content_topic(topic)  # raises if invalid
        place = None if position is None else as_position(position)
        payload = Attributes(dict(values), place)
        message = self.compose(Kind.CONTENT, topic, payload, priority, expires_in_s)
        return await self._say(replace(message, policy=as_policy(policy)))

    @checked
    async def publish_moving(
        self,
        topic: str,
        values: Values,
        *,
        radius_m: float = 0.0,
        ttl_s: float | None = None,
        name: str | None = None,
    ) -> MovingPublication:
        """Publish this client as a moving entity: subscribers near it are notified.

        It is valid until it is withdrawn or the client closes. Raises MatchingError when refused.
        """
        name = self.moving.entities.free_name("publication", topic, name)
        return await self.moving.publish(Publication(name, topic, dict(values), radius_m, ttl_s))

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
        topics.events_topic(kind)  # raises if invalid
        place = self.position if position is None else as_position(position)
        telemetry = self.session.telemetry
        speed = telemetry.speed_mps if telemetry else None
        event = Event(kind, place, radius_m, speed, text, dict(values or {}))
        message = self.compose(Kind.EVENT, "", event, priority, expires_in_s)
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
        """Send a message to other clients: one, a group, those in an area, or all `within_m`.

        Its delivery is reported, client by client: `await receipts.settled()`.
        """
        topics.content_topic(topic)  # raises if invalid
        destination = to_whom(to, within_m, self.position)
        if destination == self.address:
            raise MessageError(f"{self.address.name} cannot tell itself")
        if priority > Priority.WARNING:
            raise MessageError(f"a client tells with a priority up to {Priority.WARNING:d}")
        payload = Attributes(dict(values))
        message = self.compose(Kind.CONTENT, topic, payload, priority, expires_in_s)
        message = replace(
            message, destination=destination, policy=as_policy(policy), ordered=ordered
        )
        receipts = Receipts(message)
        self.reception.expect(receipts)
        self.follow_up()
        await self._say(message)
        return receipts

    @checked
    async def taken(self, message: Message, timeout_s: float | None = None) -> DeliveryState:
        """Wait until the adapter has acknowledged or refused a message.

        Not for fire-and-forget messages; raises NotSettledError, which is a TimeoutError.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return (await self.mediator.taken(message.id)).state
        except TimeoutError:
            raise NotSettledError(
                f"the adapter has not answered message {message.id} within {timeout_s:g} s"
            ) from None

    @checked
    async def join(self, *groups: str) -> None:
        """Join these groups."""
        self.regroup(joined=groups)

    @checked
    async def leave(self, *groups: str) -> None:
        """Leave these groups."""
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
        topics.content_topic(topic)  # raises if invalid
        subscription = Subscription(new_id(), topic, where, near_m)
        stream = ContentStream(subscription, self._unsubscribe, handler)
        self.reception.streams[subscription.id] = stream
        try:
            await self._subscribe(subscription, timeout_s)
        except BaseException:
            self.reception.streams.pop(subscription.id, None)
            raise
        return stream

    async def _unsubscribe(self, subscription: Subscription) -> None:
        if self.reception.streams.pop(subscription.id, None):
            self.forget(subscription)

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
        """Subscribe to what is near: `async for match in client.near("taxi", radius_m=500)`.

        The circle moves with the client; a polygon, or its corners, stays where it is. Raises
        MatchingError and FilterError if invalid; a refusal is raised by the iteration.
        With `inside`, also every move of what is inside; with `dwell_s`, also what has been inside
        for this time. `name` is what the client calls it, else the topic.
        """
        name = self.moving.entities.free_name("subscription", topic, name)
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
        """Query what is near now, or in a polygon: the nearest first."""
        subscription = NearSubscription("?", topic, radius_m, as_polygon(polygon), where)
        return await self.moving.ask(subscription, limit, timeout_s)

    @checked
    async def query(
        self, place: Area | PositionLike, radius_m: float = 1000.0, timeout_s: float = 5.0
    ) -> list[dict[str, Any]]:
        """Query the alerts and conditions in an area, or around a place."""
        area = place if isinstance(place, Area) else Area(Circle(as_position(place), radius_m))
        message = self.compose(Kind.REQUEST, "conditions", Attributes())
        message = replace(message, destination=Address.to_area(area))
        values = (await self.confirm(message, timeout_s)).values
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
        message = self.compose(Kind.REQUEST, topic, Attributes(dict(values)))
        return await self.confirm(message, timeout_s, retry_s)

    @checked
    async def why(self, id: UUID | str, timeout_s: float = 10.0) -> str:
        """Explain what became of a message of the last hour from or to this client.

        Times of day are in UTC. Raises RequestError if it is unknown.
        """
        outcome = self.mediator.outcome(UUID(str(id)))
        if outcome is not None and outcome.state is not DeliveryState.ACKNOWLEDGED:
            return about_uplink(*outcome)
        reply = await self.request("why", {"message": str(id)}, timeout_s=timeout_s, retry_s=2.0)
        return str(reply.values["answer"])

    # Receiving

    @property
    def inbox(self) -> Inbox:
        """Messages to this client that were not read yet."""
        return self.reception.inbox

    def __aiter__(self) -> AsyncIterator[Message]:
        return aiter(self.inbox)

    @checked
    def on(self, kind: Kind | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Decorate a function, plain or async, that is called with received messages.

        Replies and receipts go to the awaiting call, and to no handler.
        """

        def register(handler: AnyHandler) -> AnyHandler:
            self.reception.handlers.append((kind, handler))
            return handler

        return register
