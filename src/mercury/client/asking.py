"""Requests that wait for their reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from mercury.model.errors import RequestError
from mercury.model.message import Message

RETRY_S = 0.5


class Asking:
    """Sends a request, again if need be, and hands back the reply to it."""

    def __init__(
        self,
        send: Callable[[Message], Awaitable[None]],
        replies: dict[UUID | None, asyncio.Future[Message]],
    ) -> None:
        self._send = send
        self._replies = replies  # by the request that they are waited for

    async def ask(self, message: Message, timeout_s: float, retry_s: float | None) -> Message:
        """Wait for the reply, whatever it says."""
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[message.id] = reply
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._send(message)
                    done, _ = await asyncio.wait([reply], timeout=retry_s)
                    if done:
                        return reply.result()
        except TimeoutError:
            what = message.topic or message.kind.name.lower()
            raise RequestError(f"no reply to {what!r} within {timeout_s:g} s") from None
        finally:
            self._replies.pop(message.id, None)

    async def confirm(
        self, message: Message, timeout_s: float, retry_s: float | None = RETRY_S
    ) -> Message:
        """Wait for the reply, which must not be a refusal."""
        reply = await self.ask(message, timeout_s, retry_s)
        if "error" in reply.values:
            raise RequestError(str(reply.values["error"]))
        return reply
