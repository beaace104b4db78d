"""A client's publications and subscriptions: when to declare them again, what was missed.

A core: the shell (`declaring`) asks the adapter, calls `handle_timer`, and does what is due.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from mercury.model.declarations import NumberedMatch
from mercury.model.errors import MatchingError
from mercury.model.matching import EventReason, EventType, Match, Side

RENEW_S = 30.0  # interval
# When a subscription began anew, everything inside has entered again within this time, also over
# a lossy link.
RESOLVE_S = 5.0
# An event missing for this long has been given up by the adapter.
GAP_S = 35.0
_REQUESTS = 1024  # declarations that may still be refused
_HELD = 10_000  # matches kept while an earlier one is missing

Key = tuple[Side, str]  # of what a client declared: its side and name


class Pairs:
    """Which publications a subscription has inside, and which received events are new.

    All events but `inside` are numbered. An early one is held until those missing have come; a
    repeated one is dropped. When the subscription begins a new incarnation (its session, its
    adapter or a matcher was lost), numbers restart and everything inside enters again: what was
    known is not notified anew, and what has not entered again by `resolve` has left.
    """

    def __init__(self, dropped: Counter[str]) -> None:
        self.inside: dict[str, Match] = {}  # by publication: its last event
        self.incarnation = 0
        # When unsure entities count as left, and missing events as lost, unless they come before.
        self.resolve_at = self.lost_at = math.inf
        self._dropped = dropped
        self._next = 1  # the number that is due
        self._held: dict[int, Match] = {}
        self._unsure: set[str] = set()  # inside in an earlier incarnation
        self._dwelled: set[str] = set()

    @property
    def has_gap(self) -> bool:
        return bool(self._held)

    @property
    def is_unsure(self) -> bool:
        """Whether something of an earlier incarnation has not entered again."""
        return bool(self._unsure)

    def take(self, numbered: NumberedMatch) -> list[Match]:
        """Take received events; returns those to notify the application of now, in order."""
        incarnation, number, match = numbered
        if incarnation < self.incarnation:
            self._dropped["match-of-earlier-incarnation"] += 1
            return []
        if incarnation > self.incarnation:
            self._begin(incarnation)
        if match.event_type is EventType.INSIDE:
            return self._still_inside(number, match)
        if number < self._next or number in self._held:
            self._dropped["match-repeated"] += 1
            return []
        if number > self._next and len(self._held) >= _HELD:
            self._dropped["match-no-room"] += 1
            return []
        self._held[number] = match
        notified = []
        while self._next in self._held:
            fresh = self._apply(self._held.pop(self._next))
            self._next += 1
            if fresh is not None:
                notified.append(fresh)
        return notified

    def doubt(self) -> None:
        """A new incarnation has begun, without events so far."""
        self._unsure = set(self.inside)

    def resolve(self, time_us: int) -> list[Match]:
        """All that is inside has entered again by now: the rest has left unnoticed."""
        gone = sorted(self._unsure)
        self._unsure.clear()
        self._dwelled.difference_update(gone)
        return [
            self.inside.pop(publication)._replace(
                event_type=EventType.EXIT, reason=EventReason.EXPIRED, time_us=time_us
            )
            for publication in gone
        ]

    def _begin(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self._next = 1
        self._held.clear()
        self.resolve_at = self.lost_at = math.inf
        self.doubt()

    def _still_inside(self, number: int, match: Match) -> list[Match]:
        known = self.inside.get(match.publication)
        # Before its enter, or overtaken by a later event.
        if known is None or number >= self._next or match.time_us < known.time_us:
            self._dropped["match-out-of-order"] += 1
            return []
        self.inside[match.publication] = match
        return [match]

    def _apply(self, match: Match) -> Match | None:
        publication = match.publication
        is_inside = publication in self.inside
        if match.event_type is EventType.ENTER:
            self.inside[publication] = match
            if not is_inside:
                return match
            self._unsure.discard(publication)
        elif match.event_type is EventType.EXIT:
            # The subscription was withdrawn in order to begin anew: nothing has left.
            if is_inside and publication not in self._unsure:
                del self.inside[publication]
                self._dwelled.discard(publication)
                return match
        elif is_inside and publication not in self._dwelled:
            self._dwelled.add(publication)
            return match
        self._dropped["match-known"] += 1
        return None


class DueActions(NamedTuple):
    """What a client must do now about its declarations."""

    renew: bool  # renew all declarations, then call `renewed`
    gone: list[tuple[str, list[Match]]]  # by subscription: what has left unnoticed
    lost: list[str]  # subscriptions that must begin anew


class MovingEntities:
    """The publications and the subscriptions of a client."""

    def __init__(self, dropped: Counter[str]) -> None:
        self.pairs: dict[str, Pairs] = {}  # by subscription
        self._dropped = dropped
        self._declared: set[Key] = set()
        self._requests: OrderedDict[Hashable, Key] = OrderedDict()
        self._renew_at = math.inf

    def free_name(self, side: Side, topic: str, name: str | None) -> str:
        """The given name, or a new one that the client's next incarnation will use again."""
        if name is None:
            name, number = topic, 1
            while (side, name) in self._declared:
                number += 1
                name = f"{topic}-{number}"
        elif (side, name) in self._declared:
            raise MatchingError(f"{name!r} is declared already", "id")
        return name

    def add(self, side: Side, name: str) -> None:
        self._declared.add((side, name))
        if side == "subscription":
            self.pairs[name] = Pairs(self._dropped)

    def remove(self, side: Side, name: str) -> None:
        """Remove what was withdrawn or refused; its name is free from now on."""
        self._declared.discard((side, name))
        for request in [id for id, key in self._requests.items() if key == (side, name)]:
            del self._requests[request]
        if side == "subscription":
            del self.pairs[name]

    def requested(self, request: Hashable, key: Key) -> None:
        """An entity was declared with this request, which may be refused later."""
        self._requests[request] = key
        if len(self._requests) > _REQUESTS:
            self._requests.popitem(last=False)

    def declared_by(self, request: Hashable) -> Key | None:
        return self._requests.get(request)

    def renewed(self, now: float) -> None:
        """The adapter has the declaration: renew it after an interval."""
        self._renew_at = min(self._renew_at, now + RENEW_S)

    def take(self, numbered: NumberedMatch, now: float) -> list[Match]:
        """Take the adapter's events; returns those to notify the application of now, in order."""
        pairs = self.pairs.get(numbered.match.subscription)
        if pairs is None:  # withdrawn just now, or a relayed application's
            return []
        fresh = pairs.take(numbered)
        _watch(pairs, now)
        return fresh

    def declared_anew(self, name: str, incarnation: int, now: float) -> None:
        """A subscription of this incarnation was unknown to the adapter and declared anew."""
        pairs = self.pairs.get(name)
        if pairs is not None and pairs.incarnation == incarnation:
            pairs.doubt()  # perhaps nothing is inside any more
            _watch(pairs, now)

    def next_timer(self) -> float | None:
        """When to call `handle_timer` next."""
        at = self._renew_at
        for pairs in self.pairs.values():
            at = min(at, pairs.resolve_at, pairs.lost_at)
        return None if at == math.inf else at

    def handle_timer(self, now: float, now_us: int) -> DueActions:
        """Resolve what has been unsure for long enough, and find what is lost."""
        due = DueActions(self._renew_at <= now, [], [])
        if due.renew:
            self._renew_at = math.inf
        for name, pairs in self.pairs.items():
            if pairs.resolve_at <= now:
                pairs.resolve_at = math.inf
                due.gone.append((name, pairs.resolve(now_us)))
            if pairs.lost_at <= now:
                pairs.lost_at = now + GAP_S  # retry later if the adapter cannot be asked
                due.lost.append(name)
                self._dropped["matches-lost"] += 1
        return due


def _watch(pairs: Pairs, now: float) -> None:
    """Start or clear the timeouts of unsure and missing events."""
    pairs.resolve_at = min(pairs.resolve_at, now + RESOLVE_S) if pairs.is_unsure else math.inf
    pairs.lost_at = min(pairs.lost_at, now + GAP_S) if pairs.has_gap else math.inf
