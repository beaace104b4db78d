"""The receiving side (pMediator §4.2): answer every copy, pass each message on once."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto

_REMEMBER_S = 3600.0  # for a message without expiry
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


@dataclass(slots=True)
class _Source:
    # What the sender may repeat, with the answer: empty, or why it was refused.
    lasting: dict[Hashable, str] = field(default_factory=dict)
    ends: list[tuple[float, int, Hashable]] = field(default_factory=list)  # a heap: until when
    # What only the network may repeat, and until when; the oldest first.
    passing: OrderedDict[Hashable, float] = field(default_factory=OrderedDict)
    answers: OrderedDict[Hashable, str] = field(default_factory=OrderedDict)  # to be sent
    statistics: SourceStatistics = field(default_factory=SourceStatistics)


class Incoming:
    """Remembers each sender's messages for as long as they may be repeated.

    The memory of one sender is bounded. When it is full of messages that may still be repeated, a
    new one is neither taken nor answered, so that nothing is ever passed on twice: the sender
    repeats it, and finds room later. One sender takes no room from another.
    """

    def __init__(
        self,
        *,
        ack_after_s: float = 0.02,
        max_ids: int = 10_000,
        max_sources: int = 10_000,
    ) -> None:
        self._ack_after_s = ack_after_s
        self._max_ids = max_ids
        self._max_sources = max_sources
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._due: list[tuple[float, int, str]] = []
        self._count = 0

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
    ) -> Arrival:
        """Take a copy; it is answered if that is asked for. Only what is NEW is passed on.

        After `until` the same id is another message: a sender may restart its count.
        With `answer` false the host answers itself, once the message is durable.
        """
        source = self._source(sender, now)
        if source is None:
            return Arrival.NO_ROOM
        self._forget(source, now)
        statistics = source.statistics
        if id in source.lasting or source.passing.get(id, now) > now:
            statistics.repeated += 1
            if acknowledge:
                statistics.acks_resent += 1
                if answer:
                    self._answer(sender, source, id, source.lasting.get(id, ""), now)
            return Arrival.REPEATED
        if acknowledge:
            if len(source.lasting) >= self._max_ids:
                return Arrival.NO_ROOM
            source.lasting[id] = ""
            end = now + _REMEMBER_S if until is None else until
            self._count += 1
            heapq.heappush(source.ends, (end, self._count, id))
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
            source.lasting[id] = reason
            if answer:
                self._answer(sender, source, id, reason, now)

    def answer_to(self, sender: str, id: Hashable) -> str | None:
        """Why a received message was refused; empty if it was not, None if it is unknown."""
        source = self._sources.get(sender)
        return None if source is None else source.lasting.get(id)

    def disown(self, sender: str, id: Hashable) -> None:
        """Forget a received message that could not be stored: its next copy is NEW."""
        source = self._sources.get(sender)
        if source is not None:
            source.lasting.pop(id, None)
            source.answers.pop(id, None)

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

    def _source(self, sender: str, now: float) -> _Source | None:
        source = self._sources.get(sender)
        if source is None:
            if len(self._sources) >= self._max_sources and not self._drop_a_source(now):
                return None
            source = self._sources[sender] = _Source()
        return source

    def _drop_a_source(self, now: float) -> bool:
        """Make room: drop the oldest sender of those that can repeat nothing any more."""
        for name, source in self._sources.items():
            self._forget(source, now)
            if not source.lasting and not source.answers:
                del self._sources[name]
                return True
        return False

    def _answer(self, sender: str, source: _Source, id: Hashable, refusal: str, now: float) -> None:
        if not source.answers:
            self._count += 1
            heapq.heappush(self._due, (now + self._ack_after_s, self._count, sender))
        source.answers[id] = refusal

    def _forget(self, source: _Source, now: float) -> None:
        while source.ends and source.ends[0][0] <= now:
            _, _, id = heapq.heappop(source.ends)
            source.lasting.pop(id, None)
