"""Declares to the adapter what moves with a client: publications, subscriptions, queries."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from mercury.client.asking import RETRY_S, Asking
from mercury.client.composing import PositionLike, as_position
from mercury.client.moving_entities import RENEW_S, MovingEntities
from mercury.client.near import Declared, MatchHandler, MatchStream, MovingPublication
from mercury.model.area import Polygon
from mercury.model.declarations import (
    ASK,
    DECLARE,
    WITHDRAW,
    Declaration,
    Matches,
    NearQuery,
    Withdrawal,
)
from mercury.model.errors import MatchingError, MercuryError, RequestError
from mercury.model.matching import Match, NearSubscription, Publication, Side
from mercury.model.message import Kind, Message, Payload
from mercury.service.clock import now, now_us

log = logging.getLogger(__name__)

_WITHDRAW_S = 2.0

Compose = Callable[[Kind, str, Payload], Message]
Call = Callable[[MatchHandler, Match], None]


class Declaring:
    """Declares, repeats what it declared, and hands matches to the streams that they are for."""

    def __init__(
        self,
        identity: str,
        asking: Asking,
        compose: Compose,
        run: Callable[[Coroutine[Any, Any, None]], None],
        call: Call,
        dropped: Counter[str],
    ) -> None:
        self.streams: dict[str, MatchStream] = {}  # by name
        self.publications: dict[str, MovingPublication] = {}
        self._identity = identity
        self._asking = asking
        self._compose = compose
        self._run = run
        self._call = call
        self._entities = MovingEntities(dropped)

    # What the application wants

    def free_name(self, side: Side, topic: str, name: str | None) -> str:
        """The name asked for, or one after the topic; raises MatchingError where it is taken."""
        return self._entities.free_name(side, topic, name)

    async def publish(self, what: Publication, timeout_s: float = 5.0) -> MovingPublication:
        """Publish something that moves; raises MatchingError when refused."""
        self._entities.add("publication", what.id)
        publication = self.publications[what.id] = MovingPublication(what, self)
        try:
            await self.declare(publication, timeout_s)
        except BaseException:
            self._forget(publication)
            raise
        self._entities.renewed(now())
        return publication

    def near(
        self, what: NearSubscription, handler: MatchHandler | None, timeout_s: float
    ) -> MatchStream:
        """Begin to hear of what is near."""
        self._entities.add("subscription", what.id)
        pairs = self._entities.pairs[what.id]
        stream = self.streams[what.id] = MatchStream(what, self, self._call, pairs, handler)
        self._run(self._begin(stream, timeout_s))
        return stream

    async def ask(
        self, subscription: NearSubscription, limit: int, timeout_s: float
    ) -> list[Match]:
        """Ask once what is near, the nearest first; raises MatchingError when refused."""
        message = self._compose(Kind.REQUEST, ASK, NearQuery(subscription, limit))
        reply = _checked(await self._asking.ask(message, timeout_s, RETRY_S))
        found = reply.payload
        if not isinstance(found, Matches):
            raise RequestError("the answer holds no matches")
        return [match for _, _, match in found.rows]

    async def declare(self, declared: Declared, timeout_s: float) -> None:
        """Declare something to the adapter; raises MatchingError when refused."""
        message = self._compose(Kind.REQUEST, DECLARE, Declaration(declared.what))
        self._entities.requested(message.id, (_side(declared), declared.what.id))
        _checked(await self._asking.ask(message, timeout_s, RETRY_S))

    async def withdraw(self, declared: Declared) -> None:
        """Withdraw something; without a session the adapter knows of nothing."""
        if self._forget(declared):
            await self._say_withdrawn(declared)

    # What the adapter says

    def take(self, matches: Matches) -> None:
        """Hand matches to their streams."""
        for numbered in matches.rows:
            news = self._entities.take(numbered, now())
            if news:
                self.streams[numbered.match.subscription].notify(news)

    def refused(self, reply: Message) -> None:
        """A reply that nobody waits for may be a refusal that came late."""
        key = self._entities.declared_by(reply.correlation)
        declared = None if key is None else self._known(key[0]).get(key[1])
        if declared is not None and "error" in reply.values and self._forget(declared):
            log.warning("%s: %r is refused", self._identity, declared.what.id)
            declared.refuse(_error(reply))

    def connected(self) -> None:
        """There is a new session, which knows of nothing yet."""
        for declared in (*self.publications.values(), *self.streams.values()):
            self._run(self._repeat_anew(declared))

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        return self._entities.next_timer()

    def handle_timer(self) -> None:
        """Renew what was declared, and begin anew where something was lost."""
        due = self._entities.handle_timer(now(), now_us())
        for name, matches in due.gone:
            self.streams[name].notify(matches)
        for name in due.lost:
            self._run(self._begin_anew(self.streams[name]))
        if due.renew:
            self._run(self._renew())

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
        self._entities.renewed(now())

    async def repeat(self, declared: Declared) -> bool:
        """Declare something again; returns whether the adapter has it."""
        try:
            await self.declare(declared, RENEW_S)
        except MatchingError as error:
            if self._forget(declared):
                declared.refuse(error)
        except MercuryError as error:
            log.warning("%s could not renew %r: %s", self._identity, declared.what.id, error)
        else:
            return True
        return False

    async def _repeat_anew(self, declared: Declared) -> None:
        """Declare to who knows nothing of it: everything that is inside comes in again."""
        incarnation = declared.pairs.incarnation if isinstance(declared, MatchStream) else 0
        if await self.repeat(declared) and isinstance(declared, MatchStream):
            self._entities.declared_anew(declared.what.id, incarnation, now())

    async def _renew(self) -> None:
        # An adapter or a matcher that lost what it knew has it again soon.
        for declared in (*self.publications.values(), *self.streams.values()):
            await self.repeat(declared)
        self._entities.renewed(now())

    async def _begin_anew(self, stream: MatchStream) -> None:
        await self._say_withdrawn(stream)
        await self._repeat_anew(stream)

    async def _say_withdrawn(self, declared: Declared) -> None:
        said = Withdrawal(_side(declared), declared.what.id)
        message = self._compose(Kind.REQUEST, WITHDRAW, said)
        try:
            await self._asking.ask(message, _WITHDRAW_S, RETRY_S)
        except RequestError:  # it ends with the session, or with its time to live
            log.info("%s could not withdraw %r", self._identity, declared.what.id)

    def _known(self, side: Side) -> dict[str, Any]:
        return self.publications if side == "publication" else self.streams

    def _forget(self, declared: Declared) -> bool:
        side, name = _side(declared), declared.what.id
        known = self._known(side)
        if known.get(name) is not declared:
            return False
        del known[name]
        self._entities.remove(side, name)
        return True


def as_polygon(polygon: Polygon | Sequence[PositionLike] | None) -> Polygon | None:
    """Accept a Polygon or its corners."""
    if polygon is None or isinstance(polygon, Polygon):
        return polygon
    return Polygon(tuple(as_position(corner) for corner in polygon))


def _side(declared: Declared) -> Side:
    return "publication" if isinstance(declared, MovingPublication) else "subscription"


def _checked(reply: Message) -> Message:
    if "error" in reply.values:
        raise _error(reply)
    return reply


def _error(reply: Message) -> MercuryError:
    sentence = str(reply.values["error"])
    reason = reply.values.get("reason")
    if isinstance(reason, str):
        return MatchingError(sentence, reason)
    if sentence.startswith("no such request"):  # said by who knows nothing of matching
        return RequestError("this adapter does not match what moves; a newer one does")
    return RequestError(sentence)
