"""What moves with a client: names, when it is declared again, and what may have been missed.

A core: the shell (`declaring`) asks the adapter, calls `handle_timer`, and does what is due.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from mercury.client.pairs import Pairs
from mercury.model.declarations import NumberedMatch
from mercury.model.errors import MatchingError
from mercury.model.matching import Match, Side

RENEW_S = 30.0  # interval
# When a subscription began anew, everything inside has come in again within this time, also over
# a link that loses.
SETTLE_S = 5.0
# A number that is missing for this long has been given up by the adapter.
GAP_S = 35.0
_REQUESTS = 1024  # declarations that may still be refused

Key = tuple[Side, str]  # of what a client declared: its side and name


class Due(NamedTuple):
    """What is to be done now about what a client declared."""

    renew: bool  # declare everything again, then call `renewed`
    gone: list[tuple[str, list[Match]]]  # by subscription: what has gone out unnoticed
    lost: list[str]  # subscriptions that must begin anew


class MovingEntities:
    """The publications and the subscriptions of a client."""

    def __init__(self, dropped: Counter[str]) -> None:
        self.pairs: dict[str, Pairs] = {}  # by subscription
        self._dropped = dropped
        self._declared: set[Key] = set()
        self._requests: OrderedDict[Hashable, Key] = OrderedDict()
        self._renew_at: float | None = None
        # By subscription, the oldest first: since when it has been so.
        self._unsure_since: dict[str, float] = {}
        self._gap_since: dict[str, float] = {}

    def free_name(self, side: Side, topic: str, name: str | None) -> str:
        """The name asked for, or one that is the same in the client's next incarnation."""
        if name is None:
            name, number = topic, 1
            while (side, name) in self._declared:
                number += 1
                name = f"{topic}-{number}"
        elif (side, name) in self._declared:
            raise MatchingError(f"{name!r} is declared already", "id")
        return name

    def add(self, side: Side, name: str) -> None:
        """Take something that is to be declared."""
        self._declared.add((side, name))
        if side == "subscription":
            self.pairs[name] = Pairs(self._dropped)

    def remove(self, side: Side, name: str) -> None:
        """Forget what was withdrawn or refused; its name may be another's from now on."""
        self._declared.discard((side, name))
        for request in [id for id, key in self._requests.items() if key == (side, name)]:
            del self._requests[request]
        if side == "subscription":
            del self.pairs[name]
            self._unsure_since.pop(name, None)
            self._gap_since.pop(name, None)

    def requested(self, request: Hashable, key: Key) -> None:
        """Something was declared with this request, which may be refused later."""
        self._requests[request] = key
        if len(self._requests) > _REQUESTS:
            self._requests.popitem(last=False)

    def declared_by(self, request: Hashable) -> Key | None:
        """What was declared with a request."""
        return self._requests.get(request)

    def renewed(self, now: float) -> None:
        """The adapter has something: it is declared again after an interval."""
        if self._renew_at is None:
            self._renew_at = now + RENEW_S

    def take(self, numbered: NumberedMatch, now: float) -> list[Match]:
        """Take what the adapter says; returns what the application is to hear now, in order."""
        name = numbered.match.subscription
        pairs = self.pairs.get(name)
        if pairs is None:  # withdrawn just now, or an application's behind the relay
            return []
        if numbered.incarnation > pairs.incarnation:
            self._unsure_since.pop(name, None)
            self._gap_since.pop(name, None)
        news = pairs.take(numbered)
        self._watch(name, pairs, now)
        return news

    def declared_anew(self, name: str, incarnation: int, now: float) -> None:
        """The adapter knew nothing of a subscription whose incarnation was this one."""
        pairs = self.pairs.get(name)
        if pairs is not None and pairs.incarnation == incarnation:
            pairs.doubt()  # it may be that nothing is inside any more
            self._watch(name, pairs, now)

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        times = [] if self._renew_at is None else [self._renew_at]
        for since, limit_s in ((self._unsure_since, SETTLE_S), (self._gap_since, GAP_S)):
            times += [at + limit_s for at in list(since.values())[:1]]
        return min(times, default=None)

    def handle_timer(self, now: float, now_us: int) -> Due:
        """Settle what has been unsure for long enough, and find what is lost."""
        renew = self._renew_at is not None and self._renew_at <= now
        if renew:
            self._renew_at = None
        gone = [
            (name, self.pairs[name].settle(now_us))
            for name in _pop_older(self._unsure_since, now, SETTLE_S)
        ]
        lost = _pop_older(self._gap_since, now, GAP_S)
        for name in lost:
            self._dropped["matches-lost"] += 1
            self._watch(name, self.pairs[name], now)
        return Due(renew, gone, lost)

    def _watch(self, name: str, pairs: Pairs, now: float) -> None:
        for since, is_so in (
            (self._unsure_since, pairs.is_unsure),
            (self._gap_since, pairs.has_gap),
        ):
            if is_so:
                since.setdefault(name, now)
            else:
                since.pop(name, None)


def _pop_older(since: dict[str, float], now: float, limit_s: float) -> list[str]:
    names = [name for name, at in since.items() if at + limit_s <= now]
    for name in names:
        del since[name]
    return names
