"""Passes a received message to its reader: a reply, a stream of content, handlers, the inbox."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mercury.client.mediator import DeliveryOutcome
from mercury.client.receipts import Receipts
from mercury.geo import contains_point, geodesic_m
from mercury.mediator import Arrival
from mercury.model.area import Position
from mercury.model.declarations import Matches
from mercury.model.delivery import Deliveries, DeliveryState
from mercury.model.filter import Filter, compile_filter
from mercury.model.identity import ID_BYTES
from mercury.model.message import Attributes, Kind, Message, Subscription
from mercury.session import Delivered

if TYPE_CHECKING:
    from mercury.client.connection import Connection

log = logging.getLogger(__name__)

Handler = Callable[[Message], Awaitable[None] | None]

_KEPT_ALERTS = 256
_REMEMBERED_RECEIPTS = 4096
_LISTED = 32  # content that a renewed subscription lists as heard
_ROOM = 900  # bytes in its packet, for that and the filter
# An adapter or a broker may have been behind by this much when the session was lost.
_LAG_US = 15_000_000


def satisfies(
    message: Message, subscription: Subscription, content_filter: Filter, here: Position | None
) -> bool:
    """Whether a content message satisfies a subscription."""
    if message.topic != subscription.topic or not content_filter.matches(message.values):
        return False
    if subscription.near_m is None or here is None:
        return True
    place = message.payload.position if isinstance(message.payload, Attributes) else None
    if place is None:
        return False
    return float(geodesic_m(here.lat, here.lon, place.lat, place.lon)) <= subscription.near_m


class Inbox:
    """Holds messages until the application takes them; when full, the least urgent goes."""

    def __init__(self, limit: int = 10_000) -> None:
        self.lost = 0  # messages dropped because the application was too slow
        self._limit = limit
        self._heap: list[tuple[int, int, Message]] = []
        self._count = 0
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, message: Message) -> None:
        self._count += 1
        heapq.heappush(self._heap, (-message.priority, self._count, message))
        if len(self._heap) > self._limit:
            self._heap.remove(max(self._heap))
            heapq.heapify(self._heap)
            self.lost += 1
        self._changed.set()

    def close(self) -> None:
        """End the iteration once the rest is taken."""
        self._closed = True
        self._changed.set()

    async def get(self) -> Message | None:
        """Return the next message; None when closed and empty."""
        while not self._heap:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()  # wakes all waiters; those that find none wait again
        return heapq.heappop(self._heap)[2]

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.get()) is not None:
            yield message


class ContentStream:
    """The content of one subscription: iterate over it, or give it a handler."""

    def __init__(
        self,
        subscription: Subscription,
        cancel: Callable[[Subscription], Awaitable[None]],
        handler: Handler | None = None,
    ) -> None:
        self.subscription = subscription
        self.filter = compile_filter(subscription.filter)
        self.handler = handler
        self.inbox = Inbox()
        self._cancel = cancel

    def __aiter__(self) -> AsyncIterator[Message]:
        return aiter(self.inbox)

    async def cancel(self) -> None:
        """End the subscription."""
        self.inbox.close()
        await self._cancel(self.subscription)


class Renewal:
    """Since when a subscription must be given content that it missed, in a new session.

    The times are those of the servers: the time of the broker's reply, and what has passed here.
    """

    def __init__(self) -> None:
        self.since_us = 0
        self._reply: tuple[int, float] | None = None  # in this session: sent, received

    def confirmed(self, sent_us: int, now: float) -> None:
        """A broker has confirmed the subscription."""
        self.since_us = self.since_us or sent_us
        self._reply = sent_us, now

    def disconnected(self, heard_at: float) -> None:
        """The session was lost; the adapter was last heard then."""
        if self._reply is not None:
            sent_us, received = self._reply
            until_us = sent_us + int((heard_at - received) * 1e6)
            self.since_us = max(self.since_us, until_us - _LAG_US)
            self._reply = None


class Reception:
    """Passes each message to its reader: once, while it is valid, if we are in its area."""

    def __init__(self, client: Connection) -> None:
        self.inbox = Inbox()
        self.handlers: list[tuple[Kind | None, Handler]] = []
        self.streams: dict[bytes, ContentStream] = {}  # by subscription
        self.replies: dict[UUID | None, asyncio.Future[Message]] = {}  # by request
        self._renewals: dict[bytes, Renewal] = {}  # by subscription
        self._heard: deque[bytes] = deque(maxlen=_LISTED)  # the newest content
        self._receipts: OrderedDict[UUID, Receipts] = OrderedDict()
        self._elsewhere: list[Delivered] = []  # alerts for an area that we are not in
        self._client = client
        self._session = client.session
        self._mediator = client.mediator
        self._dropped = client.dropped

    def expect(self, receipts: Receipts) -> None:
        """Record the outcomes of a message in these receipts."""
        self._receipts[receipts.message.id] = receipts
        if len(self._receipts) > _REMEMBERED_RECEIPTS:
            self._receipts.popitem(last=False)

    def confirmed(self, subscription: Subscription, sent_us: int, now: float) -> None:
        """A broker has confirmed a subscription of ours or of a relayed application."""
        self._renewals.setdefault(subscription.id, Renewal()).confirmed(sent_us, now)

    def renewed(self, subscription: Subscription) -> Subscription:
        """The same for a new session: with what it heard, so that it is sent what it missed."""
        renewal = self._renewals.get(subscription.id)
        if renewal is None:
            return subscription
        room = _ROOM - len(subscription.filter.encode())
        listed = list(self._heard)[-max(room // ID_BYTES, 1) :]
        return replace(subscription, since_us=renewal.since_us, heard=b"".join(listed))

    def forget(self, subscription: Subscription) -> None:
        """A subscription has ended."""
        self._renewals.pop(subscription.id, None)

    def disconnected(self, heard_at: float) -> None:
        """The session was lost; the adapter was last heard then."""
        for renewal in self._renewals.values():
            renewal.disconnected(heard_at)

    def unsettled(self) -> list[UUID]:
        """Messages of ours whose outcome is not known for all recipients."""
        return [id for id, receipts in self._receipts.items() if not receipts.is_settled]

    def taken(self, ids: Iterable[bytes]) -> None:
        """The adapter has these messages, also if it answered after their end."""
        for id in ids:
            receipts = self._receipts.get(UUID(bytes=id)) if len(id) == 16 else None
            if receipts is not None:
                receipts.is_taken = True

    def settled(self, id: UUID, outcome: DeliveryOutcome) -> None:
        """A message of ours is settled with the adapter; if refused, no client receives it."""
        receipts = self._receipts.get(id)
        is_refused = outcome.state is DeliveryState.REFUSED and outcome.reason != "expired"
        if receipts is not None and is_refused:
            receipts.refuse(outcome.reason)

    def deliver(self, delivered: Delivered, time_us: int) -> None:
        message = delivered.message
        arrival = self._mediator.receive(delivered)
        if arrival is not Arrival.NEW:
            self._dropped["repeated" if arrival is Arrival.REPEATED else "no-room"] += 1
            if any(one.message.id == message.id for one in self._elsewhere):
                self._session.forget_seen(message.id.bytes)
        elif message.expired(time_us):
            self._dropped["expired"] += 1
            self._mediator.refuse(message, "expired")
        elif self._concerns_us(message, time_us):
            self._hand_over(message, delivered.body)
        else:
            self._mediator.refuse(message, "outside-area")
            if message.expires_us and len(self._elsewhere) < _KEPT_ALERTS:
                # The adapter saw us inside and will not send it again: keep it, in case we return.
                # Until then we do not list it to adapters as seen.
                self._elsewhere.append(delivered)
                self._session.forget_seen(message.id.bytes)
            else:
                self._dropped["outside-area"] += 1

    def moved(self, time_us: int) -> None:
        """Deliver alerts whose area we have entered."""
        kept, self._elsewhere = self._elsewhere, []
        for delivered in kept:
            if delivered.message.expired(time_us):
                self._dropped["outside-area"] += 1
            elif self._concerns_us(delivered.message, time_us):
                self._mediator.accept(delivered.message)
                self._session.remember_seen(delivered.message.id.bytes)
                self._hand_over(delivered.message, delivered.body)
            else:
                self._elsewhere.append(delivered)

    def close(self) -> None:
        """End what applications iterate over."""
        self.inbox.close()
        for stream in self.streams.values():
            stream.inbox.close()

    def _concerns_us(self, message: Message, time_us: int) -> bool:
        # Mercury §4.2: the endpoint checks its own position against the area.
        area, telemetry = message.destination.area, self._session.telemetry
        if area is None or telemetry is None:
            return True
        here = telemetry.position
        return contains_point(area, here.lat, here.lon, telemetry.heading_deg, time_us)

    def _hand_over(self, message: Message, body: bytes) -> None:
        if message.is_for_subscribers:
            self._heard.append(message.id.bytes)
        receipts = None
        if isinstance(message.payload, Deliveries):
            receipts = self._receipts.get(message.payload.message)
            if receipts is not None:
                receipts.update(message.payload.rows)
        if self._client.relay is not None and receipts is None:
            self._client.relay.deliver(message, body)
        if message.kind is Kind.RECEIPT:
            return
        self._client.counters["received"] += 1
        if isinstance(message.payload, Matches) and message.kind is Kind.CONTENT:
            self._client.moving.take(message.payload)
            return
        if message.kind is Kind.REPLY:
            waiting = self.replies.get(message.correlation)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            else:
                self._client.moving.refused(message)
            return  # the awaiting call has it; handlers do not get it
        if message.is_for_subscribers:
            self._hand_to_streams(message)
        else:
            self.inbox.put(message)
        for kind, handler in self.handlers:
            if kind is None or kind is message.kind:
                self.call(handler, message)

    def _hand_to_streams(self, message: Message) -> None:
        here = self._client.position
        for stream in self.streams.values():
            if satisfies(message, stream.subscription, stream.filter, here):
                if stream.handler is not None:
                    self.call(stream.handler, message)
                else:
                    stream.inbox.put(message)

    def call(self, handler: Callable[[Any], Awaitable[None] | None], what: object) -> None:
        """Call an application's handler; its errors are logged, not raised."""
        try:
            result = handler(what)
        except Exception:
            log.exception("a handler of %s failed", self._session.identity)
            return
        if result is not None:
            self._client.run(self._guard(result))

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            log.exception("a handler of %s failed", self._session.identity)
