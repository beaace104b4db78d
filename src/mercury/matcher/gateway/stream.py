"""Server-sent events: a subscription at a fixed place, read by anything that speaks HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mercury.matcher.gateway.event_json import event_objects, to_text
from mercury.matcher.gateway.register import Register
from mercury.matcher.gateway.requests import NearRequest
from mercury.matching import Events
from mercury.model.matching import MAX_TTL_S
from mercury.wire.declarations import Refusal

SIGN_OF_LIFE_S = 15.0  # proxies close what is silent; and who is gone is noticed


class Stream:
    """A listener whose events wait to be fetched; bounded like a websocket."""

    def __init__(self, register: Register, wanted: NearRequest) -> None:
        self._register = register
        self._name = wanted.subscription.id
        self._lines: list[str] = [": subscribed\n\n"]
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._news.set()
        self._has_ended = False
        # It never moves, and so would never be heard of again: it lives as long as its reader.
        subscription = replace(
            wanted.subscription,
            id=register.new_client() + self._name,
            ttl_s=wanted.subscription.ttl_s or MAX_TTL_S,
        )
        ref = register.hub.subscribe(subscription, self)
        register.streams += 1
        if subscription.polygon is None:
            register.move(ref, wanted.fix, None)

    def tell(self, events: Events) -> None:
        """Events of the subscription."""
        if self._has_ended:
            return
        if self._waiting_bytes > self._register.settings.high_mark_bytes:
            self._register.counts["connections_too_slow"] += 1
            gone = to_text({"error": "too much waits to be read", "reason": "slow"})
            self._lines = [f"event: error\ndata: {gone}\n\n"]
            self.end()
            return
        events = self._register.thinned(events, self._waiting_bytes)
        self._register.counts["events"] += len(events)
        for one in event_objects(events, self._register.hub, lambda _: self._name):
            line = f"event: {one['event']}\ndata: {to_text(one)}\n\n"
            self._lines.append(line)
            self._waiting_bytes += len(line)
        self._news.set()

    def refuse(self, ref: int, refusal: Refusal) -> None:
        """The subscription does not hold: its reader is notified, and the stream ends."""
        if not self._has_ended:
            said = to_text({"error": refusal.sentence, "reason": refusal.reason})
            self._lines.append(f"event: error\ndata: {said}\n\n")
            self.end()

    def end(self) -> None:
        """Nothing more will follow."""
        if not self._has_ended:
            self._has_ended = True
            self._register.streams -= 1
            self._register.hub.forget(self)
            self._news.set()

    async def texts(self) -> AsyncIterator[str]:
        """What the reader gets."""
        while True:
            try:
                async with asyncio.timeout(SIGN_OF_LIFE_S):
                    await self._news.wait()
            except TimeoutError:
                yield ": alive\n\n"
                continue
            self._news.clear()
            lines, self._lines, self._waiting_bytes = self._lines, [], 0
            if lines:
                yield "".join(lines)
            if self._has_ended:
                return


class StreamResponse(StreamingResponse):
    """The answer that a stream is read from; with it the stream ends, however that comes."""

    def __init__(self, stream: Stream, open_ones: set[Stream]) -> None:
        super().__init__(
            stream.texts(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
        self._stream = stream
        self._open_ones = open_ones
        open_ones.add(stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_ones.discard(self._stream)
            self._stream.end()
