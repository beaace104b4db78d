"""A client's subscriptions to content, and which message satisfies which."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

from mercury.client.asking import Asking
from mercury.client.inbox import Inbox
from mercury.geo import geodesic_m
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.filter import Filter, compile_filter
from mercury.model.identity import new_id
from mercury.model.message import Attributes, Kind, Message, Payload, Subscription

log = logging.getLogger(__name__)

Handler = Callable[[Message], Awaitable[None] | None]

_RENEW_S = 30.0


def satisfies(
    message: Message, subscription: Subscription, content_filter: Filter, here: Position | None
) -> bool:
    """Whether a content message is what a subscription asks for."""
    if message.topic != subscription.topic or not content_filter.matches(message.values):
        return False
    if subscription.near_m is None or here is None:
        return True
    place = message.payload.position if isinstance(message.payload, Attributes) else None
    if place is None:
        return False
    return float(geodesic_m(here.lat, here.lon, place.lat, place.lon)) <= subscription.near_m


class ContentStream:
    """The content of one subscription: iterate over it, or give it a handler."""

    def __init__(
        self,
        subscription: Subscription,
        content_filter: Filter,
        cancel: Callable[[Subscription], Awaitable[None]],
        handler: Handler | None = None,
    ) -> None:
        self.subscription = subscription
        self.filter = content_filter
        self.handler = handler
        self.inbox = Inbox()
        self._cancel = cancel

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.inbox.__aiter__()

    async def cancel(self) -> None:
        """Want no more of it."""
        self.inbox.close()
        await self._cancel(self.subscription)


class Subscriptions:
    """A client's subscriptions to content: asked for, and again in every new session."""

    def __init__(
        self,
        identity: str,
        streams: dict[bytes, ContentStream],
        asking: Asking,
        compose: Callable[[Kind, str, Payload], Message],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._identity = identity
        self._streams = streams
        self._asking = asking
        self._compose = compose
        self._run = run

    async def subscribe(
        self,
        topic: str,
        where: str,
        near_m: float | None,
        handler: Handler | None,
        cancel: Callable[[Subscription], Awaitable[None]],
        timeout_s: float,
    ) -> ContentStream:
        """Ask for content; raises FilterError or RequestError."""
        subscription = Subscription(new_id(), topic, where, near_m)
        stream = ContentStream(subscription, compile_filter(where), cancel, handler)
        self._streams[subscription.id] = stream
        try:
            await self._ask(subscription, timeout_s)
        except BaseException:
            self._streams.pop(subscription.id, None)
            raise
        return stream

    def renew(self, others: Iterable[Subscription]) -> None:
        """There is a new session: ask again, also for what others want through this client."""
        for subscription in (*(stream.subscription for stream in self._streams.values()), *others):
            self._run(self._renew(subscription))

    async def _renew(self, subscription: Subscription) -> None:
        try:
            await self._ask(subscription, _RENEW_S)
        except MercuryError as error:
            log.warning("%s could not renew %r: %s", self._identity, subscription.topic, error)

    async def _ask(self, subscription: Subscription, timeout_s: float) -> None:
        message = self._compose(Kind.SUBSCRIBE, subscription.topic, subscription)
        await self._asking.confirm(message, timeout_s)
