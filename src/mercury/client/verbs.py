"""What an application does with a client: say, tell, ask, subscribe."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, overload
from uuid import UUID

from mercury.client.arguments import checked
from mercury.client.asking import Asking
from mercury.client.composing import PositionLike, as_policy, as_position, compose, to_whom
from mercury.client.declaring import Declaring, query_subscription
from mercury.client.mediation import Mediation
from mercury.client.near import MatchHandler, MatchStream, MovingPublication
from mercury.client.receipts import Receipts
from mercury.client.reception import Reception
from mercury.client.subscriptions import ContentStream, Handler, Subscriptions
from mercury.config.mediator import PolicyName as Policy
from mercury.mediator.explain import about_uplink
from mercury.model import topics
from mercury.model.area import Area, Circle, Polygon, Position
from mercury.model.declarations import REQUESTS as ABOUT_MOVING
from mercury.model.delivery import DeliveryState
from mercury.model.errors import MessageError, NotSettledError
from mercury.model.matching import Match
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
    Values,
)
from mercury.service.clock import now
from mercury.session import ClientSession, SessionState
from mercury.wire import mercury_pb2


class Verbs(ABC):
    """The verbs of a client, over the session that `Client` keeps."""

    address: Address
    counters: Counter[str]
    identity: str
    _established: asyncio.Event
    session: ClientSession
    mediation: Mediation
    reception: Reception
    moving: Declaring
    _asking: Asking
    _subscriptions: Subscriptions

    @property
    def position(self) -> Position | None:
        """Where the client says it is."""
        telemetry = self.session.telemetry
        return telemetry.position if telemetry else None

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
            return await self.moving.publish(
                topic, values, radius_m=radius_m, ttl_s=ttl_s, name=name
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
        return self.moving.near(
            topic,
            radius_m=radius_m,
            polygon=polygon,
            where=where,
            inside=inside,
            dwell_s=dwell_s,
            hysteresis_m=hysteresis_m,
            name=name,
            handler=handler,
            timeout_s=timeout_s,
        )

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
        subscription = query_subscription(topic, radius_m, polygon, where)
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

    # Inside

    async def _say(self, message: Message) -> Message:
        if self.mediation.post(message):
            self.counters["sent"] += 1
            self.after_session()
        else:
            await self.send(message)
        return message

    def _compose(
        self,
        kind: Kind,
        topic: str,
        payload: Payload,
        priority: int = Priority.NORMAL,
        expires_in_s: float | None = None,
    ) -> Message:
        return compose(self.address, kind, topic, payload, priority, expires_in_s)

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

    @abstractmethod
    def after_session(self) -> None:
        """Do what the session decided: send, tell, set the timer."""
