"""The receiving side (pMediator §4.2): answer every copy, pass each message on once."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

_REMEMBER_S = 3600.0  # for a message without expiry
# A sender that was answered for this long and goes on sending does not repeat a message any more.
_SURE_S = 60.0
_FEW = 1000
_MAX_BATCH = 64  # answers in one packet: 64 ids of 16 bytes fit everywhere


class Arrival(Enum):
    """What a received copy is."""

    NEW = auto()
    REPEATED = auto()  # it was passed on before
    NO_ROOM = auto()  # not taken, not answered: the sender will repeat it


@dataclass(slots=True)
class SourceStatistics:
    """Counts of messages from one sender, and of answers to it."""

    received: int = 0  # new messages
    repeated: int = 0
    acks_sent: int = 0  # one for each new message
    acks_resent: int = 0  # one for each repetition


class _Taken(NamedTuple):
    """A message that its sender may repeat."""

    at: float
    refusal: str  # the answer: empty, or why it was refused


@dataclass(slots=True)
class _Source:
    # What the sender may repeat; the oldest first.
    lasting: dict[Hashable, _Taken] = field(default_factory=dict)
    # What only the network may repeat, and until when; the oldest first.
    passing: OrderedDict[Hashable, float] = field(default_factory=OrderedDict)
    answers: OrderedDict[Hashable, str] = field(default_factory=OrderedDict)  # to be sent
    statistics: SourceStatistics = field(default_factory=SourceStatistics)


class Incoming:
    """Remembers each sender's messages for as long as they may be repeated.

    The memory of one sender is bounded. When it is full of messages of the last minute, a new one
    is neither taken nor answered, so that nothing is passed on twice: the sender repeats it, and
    finds room later. Of what is older, the oldest makes room; also of what is younger, for what is
    `urgent`. Whoever has `left` makes room for others, and nobody else does: one sender takes none
    from another.
    """

    def __init__(
        self,
        *,
        ack_after_s: float = 0.02,
        max_ids: int = 10_000,
        max_sources: int = 10_000,
        max_ids_of_all: int = 1_000_000,
    ) -> None:
        self.ids = 0  # that may be repeated, of all senders
        self._ack_after_s = ack_after_s
        self._max_ids = max_ids
        self._max_sources = max_sources
        self._max_ids_of_all = max_ids_of_all
        self._sources: dict[str, _Source] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()  # who left, the first one first
        self._ends: list[tuple[float, int, str, Hashable]] = []  # a heap: until when, and which
        self._due: list[tuple[float, int, str]] = []
        self._count = 0

    def __len__(self) -> int:
        """The number of senders that are remembered."""
        return len(self._sources)

    @property
    def statistics(self) -> dict[str, SourceStatistics]:
        return {name: source.statistics for name, source in self._sources.items()}

    def receive(
        self,
        sender: str,
        id: Hashable,
        now: float,
        *,
        acknowledge: bool,
        until: float | None = None,
        answer: bool = True,
        urgent: bool = False,
    ) -> Arrival:
        """Take a copy; it is answered if that is asked for. Only what is NEW is passed on.

        After `until` the same id is another message: a sender may restart its count.
        With `answer` false the host answers itself, once the message is durable.
        """
        self.forget(now)
        source = self._source(sender)
        if source is None:
            return Arrival.NO_ROOM
        statistics = source.statistics
        if id in source.lasting or source.passing.get(id, now) > now:
            statistics.repeated += 1
            if acknowledge:
                statistics.acks_resent += 1
                if answer:
                    taken = source.lasting.get(id)
                    self._answer(sender, source, id, taken.refusal if taken else "", now)
            return Arrival.REPEATED
        if acknowledge:
            if not self._make_room(sender, source, now, urgent):
                return Arrival.NO_ROOM
            source.lasting[id] = _Taken(now, "")
            self.ids += 1
            self._remember(sender, id, now + _REMEMBER_S if until is None else until)
            statistics.acks_sent += 1
            if answer:
                self._answer(sender, source, id, "", now)
        else:
            source.passing[id] = math.inf if until is None else until
            source.passing.move_to_end(id)
            if len(source.passing) > self._max_ids:
                source.passing.popitem(last=False)
        statistics.received += 1
        return Arrival.NEW

    def refuse(
        self, sender: str, id: Hashable, reason: str, now: float, *, answer: bool = True
    ) -> None:
        """Refuse a received message; each of its copies is answered so."""
        source = self._sources.get(sender)
        if source is not None and id in source.lasting:
            source.lasting[id] = source.lasting[id]._replace(refusal=reason)
            if answer:
                self._answer(sender, source, id, reason, now)

    def answer_to(self, sender: str, id: Hashable) -> str | None:
        """Why a received message was refused; empty if it was not, None if it is unknown."""
        source = self._sources.get(sender)
        taken = None if source is None else source.lasting.get(id)
        return None if taken is None else taken.refusal

    def disown(self, sender: str, id: Hashable) -> None:
        """Forget a received message that could not be stored: its next copy is NEW."""
        source = self._sources.get(sender)
        if source is not None:
            self.ids -= source.lasting.pop(id, None) is not None
            source.answers.pop(id, None)

    def arrived(self, sender: str) -> None:
        """A sender is connected."""
        self._gone.pop(sender, None)

    def left(self, sender: str) -> None:
        """A sender is disconnected: it is forgotten when it can repeat nothing any more."""
        if sender in self._sources:
            self._gone[sender] = None
            self._forget_if_over(sender)

    def forget(self, now: float) -> None:
        """Forget what cannot be repeated any more."""
        while self._ends and self._ends[0][0] <= now:
            _, _, sender, id = heapq.heappop(self._ends)
            source = self._sources.get(sender)
            if source is not None:
                self.ids -= source.lasting.pop(id, None) is not None
                self._forget_if_over(sender)

    def take_answers(self, sender: str) -> list[tuple[Hashable, str]]:
        """Answers to piggyback on a packet to a sender: ids and refusals."""
        source = self._sources.get(sender)
        if source is None or not source.answers:
            return []
        count = min(len(source.answers), _MAX_BATCH)
        return [source.answers.popitem(last=False) for _ in range(count)]

    def answers_due(self, now: float) -> list[tuple[str, list[tuple[Hashable, str]]]]:
        """Answers by sender that must be sent now, without a packet to piggyback on."""
        found = []
        while self._due and self._due[0][0] <= now:
            _, _, sender = heapq.heappop(self._due)
            while answers := self.take_answers(sender):
                found.append((sender, answers))
        return found

    def next_timer(self) -> float | None:
        """When to call `answers_due` next."""
        while self._due:
            at, _, sender = self._due[0]
            source = self._sources.get(sender)
            if source is not None and source.answers:
                return at
            heapq.heappop(self._due)  # they were piggybacked
        return None

    def _source(self, sender: str) -> _Source | None:
        source = self._sources.get(sender)
        if source is None:
            if len(self._sources) >= self._max_sources and not self._drop_a_source():
                return None
            source = self._sources[sender] = _Source()
        return source

    def _make_room(self, sender: str, source: _Source, now: float, urgent: bool) -> bool:
        """Make room for one more message of a sender, if that can be."""
        while self.ids >= self._max_ids_of_all and self._gone and next(iter(self._gone)) != sender:
            self._drop(next(iter(self._gone)))
        if len(source.lasting) < self._max_ids and self.ids < self._max_ids_of_all:
            return True
        oldest = next(iter(source.lasting), None)
        if oldest is None:  # others have all the room
            return urgent
        if not urgent and now - source.lasting[oldest].at < _SURE_S:
            return False
        del source.lasting[oldest]
        self.ids -= 1
        return True

    def _drop_a_source(self) -> bool:
        """Make room: drop who left first, or else somebody who can repeat nothing any more."""
        idle = (name for name, one in self._sources.items() if not one.lasting and not one.answers)
        name = next(iter(self._gone), None) or next(idle, None)
        if name is None:
            return False
        self._drop(name)
        return True

    def _drop(self, sender: str) -> None:
        self.ids -= len(self._sources.pop(sender).lasting)
        self._gone.pop(sender, None)

    def _remember(self, sender: str, id: Hashable, until: float) -> None:
        self._count += 1
        heapq.heappush(self._ends, (until, self._count, sender, id))
        if len(self._ends) > 2 * self.ids + _FEW:  # most are of what was dropped
            self._ends = [end for end in self._ends if self._is_held(end[2], end[3])]
            heapq.heapify(self._ends)

    def _is_held(self, sender: str, id: Hashable) -> bool:
        source = self._sources.get(sender)
        return source is not None and id in source.lasting

    def _answer(self, sender: str, source: _Source, id: Hashable, refusal: str, now: float) -> None:
        if not source.answers:
            self._count += 1
            heapq.heappush(self._due, (now + self._ack_after_s, self._count, sender))
        source.answers[id] = refusal

    def _forget_if_over(self, sender: str) -> None:
        if sender in self._gone and not self._sources[sender].lasting:
            self._drop(sender)
