"""A client's subscriptions to content: asked for, and asked for again in every new session."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from mercury.client.asking import Asking
from mercury.client.subscriptions import ContentStream, Handler
from mercury.model.errors import MercuryError
from mercury.model.filter import compile_filter
from mercury.model.identity import new_id
from mercury.model.message import Kind, Message, Payload, Subscription

log = logging.getLogger(__name__)

_RENEW_S = 30.0


class Subscribing:
    """Subscribes, and renews what is subscribed to."""

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
        content_filter = compile_filter(where)
        subscription = Subscription(new_id(), topic, where, near_m)
        stream = ContentStream(subscription, content_filter, cancel, handler)
        self._streams[subscription.id] = stream
        try:
            await self._asking.confirm(
                self._compose(Kind.SUBSCRIBE, topic, subscription), timeout_s
            )
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
            await self._asking.confirm(
                self._compose(Kind.SUBSCRIBE, subscription.topic, subscription), _RENEW_S
            )
        except MercuryError as error:
            log.warning("%s could not renew %r: %s", self._identity, subscription.topic, error)
