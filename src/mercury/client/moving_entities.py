"""What moves with a client: its publications, its subscriptions to what is near, its queries."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from mercury.client.asking import RETRY_S, Asking
from mercury.client.composing import PositionLike, as_position
from mercury.client.near import Declared, MatchHandler, MatchStream, MovingPublication
from mercury.model.area import Polygon
from mercury.model.declarations import (
    ASK,
    DECLARE,
    WITHDRAW,
    Declaration,
    Matches,
    NearQuery,
    NumberedMatch,
    Withdrawal,
)
from mercury.model.errors import MatchingError, MercuryError, RequestError
from mercury.model.matching import Match, NearSubscription, Publication, Side
from mercury.model.message import Kind, Message, Payload, Values
from mercury.service.clock import now_us

log = logging.getLogger(__name__)

RENEW_S = 30.0
# What is inside has come in again so long after a new life began, also over a link that loses.
SETTLE_S = 5.0
# A number that is missing for so long has been given up by the adapter.
GAP_S = 35.0
_CHECK_S = 1.0
_WITHDRAW_S = 2.0
_REQUESTS = 1024  # declarations that may still be refused

Compose = Callable[[Kind, str, Payload], Message]
Call = Callable[[MatchHandler, Match], None]


class Moving:
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
        self._dropped = dropped
        self._requests: OrderedDict[UUID | None, Declared] = OrderedDict()
        self._is_renewing = False
        self._unsure_since: dict[str, float] = {}  # by stream: since when its pairs are
        self._gap_since: dict[str, float] = {}

    # What the application wants

    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        radius_m: float = 0.0,
        ttl_s: float | None = None,
        name: str | None = None,
        timeout_s: float = 5.0,
    ) -> MovingPublication:
        """Publish something that moves; raises MatchingError when refused."""
        name = _name(topic, name, self.publications)
        publication = MovingPublication(
            Publication(name, topic, dict(values), radius_m, ttl_s), self
        )
        self.publications[name] = publication
        try:
            await self.declare(publication, timeout_s)
        except BaseException:
            self._forget(publication)
            raise
        self._renew_from_now_on()
        return publication

    def near(
        self,
        topic: str,
        *,
        radius_m: float | None,
        polygon: Polygon | Sequence[PositionLike] | None,
        where: str,
        inside: bool,
        dwell_s: float | None,
        hysteresis_m: float | None,
        name: str | None,
        handler: MatchHandler | None,
        timeout_s: float,
    ) -> MatchStream:
        """Begin to hear of what is near; raises for what cannot be."""
        subscription = NearSubscription(
            _name(topic, name, self.streams),
            topic,
            radius_m,
            as_polygon(polygon),
            where,
            inside,
            dwell_s,
            hysteresis_m,
        )
        stream = MatchStream(subscription, self, self._call, self._dropped, handler)
        self.streams[subscription.id] = stream
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
        """Tell the adapter of something; raises MatchingError when refused."""
        message = self._compose(Kind.REQUEST, DECLARE, Declaration(declared.what))
        self._requests[message.id] = declared
        if len(self._requests) > _REQUESTS:
            self._requests.popitem(last=False)
        _checked(await self._asking.ask(message, timeout_s, RETRY_S))

    async def withdraw(self, declared: Declared) -> None:
        """Tell the adapter that something is no more; without a session it knows of nothing."""
        if self._forget(declared):
            await self._say_withdrawn(declared)

    # What the adapter says

    def take(self, matches: Matches) -> None:
        """Hand matches to their streams."""
        for numbered in matches.rows:
            self._take(numbered)

    def refused(self, reply: Message) -> None:
        """A reply that nobody waits for may be a refusal that came late."""
        declared = self._requests.get(reply.correlation)
        if declared is not None and "error" in reply.values and self._forget(declared):
            log.warning("%s: %r is refused", self._identity, declared.what.id)
            declared.refuse(_error(reply))

    def connected(self) -> None:
        """There is a new session, which knows of nothing yet."""
        for declared in (*self.publications.values(), *self.streams.values()):
            self._run(self._repeat_anew(declared))

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
        self._renew_from_now_on()

    async def _repeat(self, declared: Declared) -> bool:
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
        """Declare to who knows nothing of it; what is inside is told from the beginning."""
        incarnation = declared.pairs.incarnation if isinstance(declared, MatchStream) else 0
        repeated = await self._repeat(declared)
        if (
            repeated
            and isinstance(declared, MatchStream)
            and declared.pairs.incarnation == incarnation
        ):
            declared.pairs.doubt()  # it may be that nothing is inside any more

    def _renew_from_now_on(self) -> None:
        if not self._is_renewing:
            self._is_renewing = True
            self._run(self._renew())
            self._run(self._check())

    async def _renew(self) -> None:
        # An adapter or a matcher that lost what it knew has it again soon.
        while True:
            await asyncio.sleep(RENEW_S)
            for declared in (*self.publications.values(), *self.streams.values()):
                await self._repeat(declared)

    async def _check(self) -> None:
        """Settle what has been unsure for long enough, and begin anew where something is lost."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_S)
            time = loop.time()
            for name, stream in list(self.streams.items()):
                if _lasts(self._unsure_since, name, stream.pairs.is_unsure, time, SETTLE_S):
                    stream.tell(stream.pairs.settle(now_us()))
                if _lasts(self._gap_since, name, stream.pairs.has_gap, time, GAP_S):
                    self._dropped["matches-lost"] += 1
                    self._run(self._begin_anew(stream))

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

    def _take(self, numbered: NumberedMatch) -> None:
        stream = self.streams.get(numbered.match.subscription)
        if stream is None:  # withdrawn just now, or an application's behind the relay
            return
        if numbered.incarnation > stream.pairs.incarnation:
            self._unsure_since.pop(stream.what.id, None)
            self._gap_since.pop(stream.what.id, None)
        stream.take(numbered)

    def _forget(self, declared: Declared) -> bool:
        known: dict[str, Any] = (
            self.publications if isinstance(declared, MovingPublication) else self.streams
        )
        if known.get(declared.what.id) is not declared:
            return False
        del known[declared.what.id]
        self._unsure_since.pop(declared.what.id, None)
        self._gap_since.pop(declared.what.id, None)
        return True


def as_polygon(place: Polygon | Sequence[PositionLike] | None) -> Polygon | None:
    """Accept a Polygon or its corners."""
    if place is None or isinstance(place, Polygon):
        return place
    return Polygon(tuple(as_position(corner) for corner in place))


def _side(declared: Declared) -> Side:
    return "publication" if isinstance(declared, MovingPublication) else "subscription"


def _name(topic: str, name: str | None, taken: dict[str, Any]) -> str:
    """A name among what the client declared; the same in its next life, if it does the same."""
    if name is not None:
        if name in taken:
            raise MatchingError(f"{name!r} is declared already", "id")
        return name
    name, number = topic, 1
    while name in taken:
        number += 1
        name = f"{topic}-{number}"
    return name


def _lasts(since: dict[str, float], name: str, is_so: bool, time: float, limit_s: float) -> bool:
    """Whether something has been so for long enough; then it begins again."""
    if not is_so:
        since.pop(name, None)
        return False
    if time - since.setdefault(name, time) < limit_s:
        return False
    del since[name]
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
    if sentence.startswith("no such request"):  # said by who knows nothing of matching
        return RequestError("this adapter does not match what moves; a newer one does")
    return RequestError(sentence)


def query_subscription(
    topic: str,
    radius_m: float | None,
    polygon: Polygon | Sequence[PositionLike] | None,
    where: str,
) -> NearSubscription:
    """The subscription of a question, which needs no name of its own."""
    return NearSubscription("?", topic, radius_m, as_polygon(polygon), where)
