"""A client's publications and streams of matches, declared to the adapter."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mercury.client.arguments import checked
from mercury.client.moving_entities import RENEW_S, MovingEntities, Pairs
from mercury.model.declarations import (
    ASK,
    DECLARE,
    WITHDRAW,
    Declaration,
    Matches,
    NearQuery,
    Withdrawal,
)
from mercury.model.errors import (
    MatchingError,
    MercuryError,
    NotConnectedError,
    NotSettledError,
    RequestError,
)
from mercury.model.matching import EventType, Match, NearSubscription, Publication, Side
from mercury.model.message import Kind, Message, Values
from mercury.service.clock import now, now_us

if TYPE_CHECKING:
    from mercury.client.connection import Connection

log = logging.getLogger(__name__)

MatchHandler = Callable[[Match], Awaitable[None] | None]

_LIMIT = 10_000  # matches that wait for the application
_WITHDRAW_S = 2.0


class DeclaredEntity:
    """A declaration of a client, renewed until it is withdrawn or refused."""

    side: Side

    def __init__(self, what: Publication | NearSubscription, moving: Declaring) -> None:
        self.what = what
        self.refusal: MercuryError | None = None  # why it is not valid any more
        self._moving = moving

    def refuse(self, error: MercuryError) -> None:
        self.refusal = error


class MovingPublication(DeclaredEntity):
    """A publication that follows the client's position."""

    side = "publication"
    what: Publication

    @checked
    async def update(self, values: Values, timeout_s: float = 5.0) -> None:
        """Change its values or radius; raises MatchingError when refused."""
        if self.refusal is not None:
            raise self.refusal
        before, self.what = self.what, replace(self.what, values=dict(values))
        try:
            await self._moving.declare(self, timeout_s)
        except BaseException:
            self.what = before
            raise

    async def withdraw(self) -> None:
        """Withdraw it."""
        await self._moving.withdraw(self)


class MatchStream(DeclaredEntity):
    """Matches near the client, or inside a polygon: iterate over it, or give it a handler."""

    side = "subscription"
    what: NearSubscription

    def __init__(
        self,
        what: NearSubscription,
        moving: Declaring,
        pairs: Pairs,
        handler: MatchHandler | None = None,
    ) -> None:
        super().__init__(what, moving)
        self.handler = handler
        self.pairs = pairs
        self.lost = 0  # matches dropped because the application was too slow
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
        """Wait until the adapter has it; raises the refusal, or NotSettledError."""
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
        """End the subscription."""
        self.close()
        await self._moving.withdraw(self)

    async def __aiter__(self) -> AsyncIterator[Match]:
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

    def notify(self, matches: list[Match]) -> None:
        for match in matches:
            if self.handler is not None:
                self._moving.client.reception.call(self.handler, match)
            elif not self._closed:
                if len(self._queue) >= _LIMIT:
                    self.lost += 1
                    # Enters and exits matter more than moves inside.
                    details = (one for one in self._queue if one.event_type is EventType.INSIDE)
                    self._queue.remove(next(details, self._queue[0]))
                self._queue.append(match)
                self._changed.set()

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


class Declaring:
    """Declares entities, renews them, and passes matches to their streams."""

    def __init__(self, client: Connection) -> None:
        self.client = client
        self.streams: dict[str, MatchStream] = {}  # by name
        self.publications: dict[str, MovingPublication] = {}
        self.entities = MovingEntities(client.dropped)

    # Called by the application

    async def publish(self, what: Publication, timeout_s: float = 5.0) -> MovingPublication:
        """Publish something that moves; raises MatchingError when refused."""
        self.entities.add("publication", what.id)
        publication = self.publications[what.id] = MovingPublication(what, self)
        try:
            await self.declare(publication, timeout_s)
        except BaseException:
            self._forget(publication)
            raise
        self.entities.renewed(now())
        return publication

    def near(
        self, what: NearSubscription, handler: MatchHandler | None, timeout_s: float
    ) -> MatchStream:
        """Subscribe to what is near."""
        self.entities.add("subscription", what.id)
        pairs = self.entities.pairs[what.id]
        stream = self.streams[what.id] = MatchStream(what, self, pairs, handler)
        self.client.run(self._begin(stream, timeout_s))
        return stream

    async def ask(
        self, subscription: NearSubscription, limit: int, timeout_s: float
    ) -> list[Match]:
        """Query what is near now, the nearest first; raises MatchingError when refused."""
        message = self.client.compose(Kind.REQUEST, ASK, NearQuery(subscription, limit))
        reply = _checked(await self.client.ask(message, timeout_s))
        found = reply.payload
        if not isinstance(found, Matches):
            raise RequestError("the answer holds no matches")
        return [match for _, _, match in found.rows]

    async def declare(self, declared: DeclaredEntity, timeout_s: float) -> None:
        """Declare an entity to the adapter; raises MatchingError when refused."""
        message = self.client.compose(Kind.REQUEST, DECLARE, Declaration(declared.what))
        self.entities.requested(message.id, (declared.side, declared.what.id))
        _checked(await self.client.ask(message, timeout_s))

    async def withdraw(self, declared: DeclaredEntity) -> None:
        """Withdraw an entity; without a session the adapter has none."""
        if self._forget(declared):
            await self._say_withdrawn(declared)

    # Answers of the adapter

    def take(self, matches: Matches) -> None:
        for numbered in matches.rows:
            fresh = self.entities.take(numbered, now())
            if fresh:
                self.streams[numbered.match.subscription].notify(fresh)

    def refused(self, reply: Message) -> None:
        """Handle a reply that no call awaits: it may be a late refusal."""
        key = self.entities.declared_by(reply.correlation)
        declared = None if key is None else self._known(key[0]).get(key[1])
        if declared is not None and "error" in reply.values and self._forget(declared):
            log.warning("%s: %r is refused", self.client.identity, declared.what.id)
            declared.refuse(_error(reply))

    def connected(self) -> None:
        """A new session began, without declarations yet."""
        for declared in (*self.publications.values(), *self.streams.values()):
            self.client.run(self._repeat_anew(declared))

    def handle_timer(self) -> None:
        """Renew declarations, and restart subscriptions that have lost events."""
        due = self.entities.handle_timer(now(), now_us())
        for name, matches in due.gone:
            self.streams[name].notify(matches)
        for name in due.lost:
            self.client.run(self._begin_anew(self.streams[name]))
        if due.renew:
            self.client.run(self._renew())

    def close(self) -> None:
        """End what applications iterate over."""
        for stream in self.streams.values():
            stream.close()

    # Inside

    async def _begin(self, stream: MatchStream, timeout_s: float) -> None:
        try:
            await self.declare(stream, timeout_s)
        except MercuryError as error:
            if self._forget(stream):
                stream.refuse(error)
            return
        stream.confirm()
        self.entities.renewed(now())

    async def repeat(self, declared: DeclaredEntity) -> bool:
        """Renew a declaration; returns whether the adapter has it."""
        try:
            await self.declare(declared, RENEW_S)
        except MatchingError as error:
            if self._forget(declared):
                declared.refuse(error)
        except MercuryError as error:
            log.warning("%s could not renew %r: %s", self.client.identity, declared.what.id, error)
        else:
            return True
        return False

    async def _repeat_anew(self, declared: DeclaredEntity) -> None:
        """Declare a subscription anew: all that is inside enters again."""
        incarnation = declared.pairs.incarnation if isinstance(declared, MatchStream) else 0
        if await self.repeat(declared) and isinstance(declared, MatchStream):
            self.entities.declared_anew(declared.what.id, incarnation, now())

    async def _renew(self) -> None:
        # So an adapter or matcher that lost its state has it again soon.
        for declared in (*self.publications.values(), *self.streams.values()):
            await self.repeat(declared)
        self.entities.renewed(now())

    async def _begin_anew(self, stream: MatchStream) -> None:
        await self._say_withdrawn(stream)
        await self._repeat_anew(stream)

    async def _say_withdrawn(self, declared: DeclaredEntity) -> None:
        said = Withdrawal(declared.side, declared.what.id)
        message = self.client.compose(Kind.REQUEST, WITHDRAW, said)
        try:
            await self.client.ask(message, _WITHDRAW_S)
        except RequestError:  # it ends with the session, or with its time to live
            log.info("%s could not withdraw %r", self.client.identity, declared.what.id)

    def _known(self, side: Side) -> dict[str, Any]:
        return self.publications if side == "publication" else self.streams

    def _forget(self, declared: DeclaredEntity) -> bool:
        side, name = declared.side, declared.what.id
        known = self._known(side)
        if known.get(name) is not declared:
            return False
        del known[name]
        self.entities.remove(side, name)
        return True


def _checked(reply: Message) -> Message:
    if "error" in reply.values:
        raise _error(reply)
    return reply


def _error(reply: Message) -> MercuryError:
    sentence = str(reply.values["error"])
    reason = reply.values.get("reason")
    if isinstance(reason, str):
        return MatchingError(sentence, reason)
    if sentence.startswith("no such request"):  # from an adapter without matching
        return RequestError("this adapter does not match what moves; a newer one does")
    return RequestError(sentence)
