"""A bounded queue of messages that an application iterates over, higher priority first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator

from mercury.model.message import Message


class Inbox:
    """Holds messages until the application takes them; when full, the least urgent goes."""

    def __init__(self, limit: int = 10_000) -> None:
        self.lost = 0  # messages that the application was too slow for
        self._limit = limit
        self._heap: list[tuple[int, int, Message]] = []
        self._count = 0
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, message: Message) -> None:
        """Add a message."""
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
            await self._changed.wait()  # wakes all who wait; who finds nothing waits again
        return heapq.heappop(self._heap)[2]

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while (message := await self.get()) is not None:
            yield message
