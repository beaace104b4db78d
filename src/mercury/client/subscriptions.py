"""A client's subscriptions for content, and which message satisfies which."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from mercury.client.inbox import Inbox
from mercury.geo import geodesic_m
from mercury.model.area import Position
from mercury.model.filter import Filter
from mercury.model.message import Attributes, Message, Subscription

Handler = Callable[[Message], Awaitable[None] | None]


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
