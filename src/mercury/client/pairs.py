"""The events of a subscription, put in order: each pair comes in and goes out once."""

from __future__ import annotations

from collections import Counter

from mercury.model.declarations import NumberedMatch
from mercury.model.matching import EventReason, EventType, Match

_HELD = 10_000  # matches kept while an earlier one is missing


class Pairs:
    """Which publications a subscription has inside, and which of what comes is news.

    All but `inside` is numbered. What comes too early is held until what is missing has come; what
    comes again is nothing new. When the subscription begins a new incarnation (its session, its
    adapter or a matcher was lost), the numbers begin again and everything inside comes in again:
    what was known is not notified anew, and what has not come in again by `settle` went out.
    """

    def __init__(self, dropped: Counter[str]) -> None:
        self.inside: dict[str, Match] = {}  # by publication: its last event
        self.incarnation = 0
        self._dropped = dropped
        self._next = 1  # the number that is due
        self._held: dict[int, Match] = {}
        self._unsure: set[str] = set()  # inside in an earlier incarnation
        self._dwelled: set[str] = set()

    @property
    def has_gap(self) -> bool:
        """Whether something is missing."""
        return bool(self._held)

    @property
    def is_unsure(self) -> bool:
        """Whether something of an earlier incarnation has not come in again."""
        return bool(self._unsure)

    def take(self, numbered: NumberedMatch) -> list[Match]:
        """Take what came; returns what the application is notified of now, in order."""
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
            news = self._apply(self._held.pop(self._next))
            self._next += 1
            if news is not None:
                notified.append(news)
        return notified

    def doubt(self) -> None:
        """A new incarnation has begun, of which nothing has come yet."""
        self._unsure = set(self.inside)

    def settle(self, time_us: int) -> list[Match]:
        """All that is inside has come in again by now: the rest went out unseen."""
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
        self.doubt()

    def _still_inside(self, number: int, match: Match) -> list[Match]:
        known = self.inside.get(match.publication)
        # Before it came in, or overtaken by a later event.
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
            # To begin anew the subscription was withdrawn: that is nobody's going out.
            if is_inside and publication not in self._unsure:
                del self.inside[publication]
                self._dwelled.discard(publication)
                return match
        elif is_inside and publication not in self._dwelled:
            self._dwelled.add(publication)
            return match
        self._dropped["match-known"] += 1
        return None
