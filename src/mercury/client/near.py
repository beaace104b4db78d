"""Streams of matches, and publications that move with a client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mercury.client.arguments import checked
from mercury.client.pairs import Pairs
from mercury.model.errors import MercuryError, NotConnectedError, NotSettledError
from mercury.model.matching import EventType, Match, NearSubscription, Publication
from mercury.model.message import Values

if TYPE_CHECKING:
    from mercury.client.declaring import Declaring

MatchHandler = Callable[[Match], Awaitable[None] | None]

_LIMIT = 10_000  # matches that wait for the application


class Declared:
    """Something that a client has declared: it is repeated until it is withdrawn or refused."""

    def __init__(self, what: Publication | NearSubscription, moving: Declaring) -> None:
        self.what = what
        self.refusal: MercuryError | None = None  # why it does not hold any more
        self._moving = moving

    def refuse(self, error: MercuryError) -> None:
        """It does not hold."""
        self.refusal = error


class MovingPublication(Declared):
    """A publication that goes where the client goes."""

    what: Publication

    @checked
    async def update(self, values: Values, timeout_s: float = 5.0) -> None:
        """Say that it is something else now; raises MatchingError when refused."""
        if self.refusal is not None:
            raise self.refusal
        before, self.what = self.what, replace(self.what, values=dict(values))
        try:
            await self._moving.declare(self, timeout_s)
        except BaseException:
            self.what = before
            raise

    async def withdraw(self) -> None:
        """It is no more."""
        await self._moving.withdraw(self)


class MatchStream(Declared):
    """What happens near the client, or inside a polygon: iterate over it, or give it a handler."""

    what: NearSubscription

    def __init__(
        self,
        what: NearSubscription,
        moving: Declaring,
        call: Callable[[MatchHandler, Match], None],
        pairs: Pairs,
        handler: MatchHandler | None = None,
    ) -> None:
        super().__init__(what, moving)
        self.handler = handler
        self.pairs = pairs
        self.lost = 0  # matches that the application was too slow for
        self._call = call
        self._queue: deque[Match] = deque()
        self._changed = asyncio.Event()
        self._answered = asyncio.Event()  # or given up
        self._is_confirmed = False
        self._closed = False

    @property
    def inside(self) -> list[Match]:
        """What is inside now, as last notified, the nearest first."""
        return sorted(self.pairs.inside.values(), key=lambda match: match.distance_m)

    @checked
    async def declared(self, timeout_s: float | None = None) -> None:
        """Wait until the adapter has it; raises why it does not hold, or NotSettledError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._answered.wait()
        except TimeoutError:
            raise NotSettledError(
                f"the adapter has not answered {self.what.id!r} within {timeout_s:g} s"
            ) from None
        if self.refusal is not None:
            raise self.refusal
        if not self._is_confirmed:
            raise NotConnectedError(f"{self.what.id!r} was given up before the adapter had it")

    async def cancel(self) -> None:
        """Want no more of it."""
        self.close()
        await self._moving.withdraw(self)

    def __aiter__(self) -> AsyncIterator[Match]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Match]:
        while True:
            while self._queue:
                yield self._queue.popleft()
            if self.refusal is not None:
                raise self.refusal
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()

    # For the client

    def notify(self, news: list[Match]) -> None:
        """Hand matches to the application."""
        for match in news:
            if self.handler is not None:
                self._call(self.handler, match)
            elif not self._closed:
                self._put(match)

    def confirm(self) -> None:
        """The adapter has it."""
        self._is_confirmed = True
        self._answered.set()

    def refuse(self, error: MercuryError) -> None:
        super().refuse(error)
        self._answered.set()
        self._changed.set()

    def close(self) -> None:
        """End the iteration once the rest is taken."""
        self._closed = True
        self._changed.set()
        self._answered.set()

    def _put(self, match: Match) -> None:
        if len(self._queue) >= _LIMIT:
            self.lost += 1
            # What comes and goes matters more than where it is in the meantime.
            details = (one for one in self._queue if one.event_type is EventType.INSIDE)
            self._queue.remove(next(details, self._queue[0]))
        self._queue.append(match)
        self._changed.set()
