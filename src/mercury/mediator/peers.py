"""The recipients of messages, by name and by number.

The number indexes columns: who is connected, how long an answer takes, and what was sent to whom.
So a message for a hundred thousand is a handful of array operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import grown

Numbers = NDArray[np.int32]

_FIRST_CAPACITY = 64
# RFC 6298 §2: the mean of the answer times, how they vary, and the wait that covers them.
_ALPHA, _BETA, _SPREAD = 1 / 8, 1 / 4, 4.0
_LISTED = 16  # recipients that are remembered for a topic


def distinct(numbers: Numbers) -> Numbers:
    """Each number once, ascending; many times as fast as np.unique."""
    ordered = np.sort(numbers)
    if len(ordered) < 2:
        return ordered
    first = np.empty(len(ordered), bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


class Peers:
    """Names and numbers; a number is reused when its peer is disconnected and in no table."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str | None] = []
        self._free: list[int] = []
        capacity = _FIRST_CAPACITY
        self.present: NDArray[np.bool_] = np.zeros(capacity, bool)  # can be sent to now
        self.held: NDArray[np.int32] = np.zeros(capacity, np.int32)  # copies in the table
        self.waiting: NDArray[np.int32] = np.zeros(capacity, np.int32)  # of which not settled
        self.sent: NDArray[np.int64] = np.zeros(capacity, np.int64)  # the first time
        self.resent: NDArray[np.int64] = np.zeros(capacity, np.int64)
        # Expired or unreachable, not fire-and-forget.
        self.dropped: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.refused: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.acknowledged: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.first_tries: NDArray[np.int64] = np.zeros(capacity, np.int64)  # of which at once
        self.first_tries_s: NDArray[np.float64] = np.zeros(capacity)  # what those took, in sum
        self.answer_s: NDArray[np.float64] = np.zeros(capacity)  # smoothed
        self.answer_spread_s: NDArray[np.float64] = np.zeros(capacity)
        self.acks: NDArray[np.int64] = np.zeros(capacity, np.int64)  # it reports as sent
        self.acks_again: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self._columns = [name for name, of in vars(self).items() if isinstance(of, np.ndarray)]

    @property
    def known(self) -> int:
        """The number of peers that have a number."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.values())

    def number(self, name: str) -> int:
        """The number of a peer, assigned if it has none."""
        number = self._numbers.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                if number >= len(self.present):
                    for column in self._columns:
                        setattr(self, column, grown(getattr(self, column), number))
            self._numbers[name] = number
        return number

    def find(self, name: str) -> int | None:
        """The number of a peer that has one."""
        return self._numbers.get(name)

    def name(self, number: int) -> str:
        name = self._names[number]
        assert name is not None
        return name

    def names(self, numbers: Numbers) -> list[str]:
        of = self._names
        return [of[number] or "" for number in numbers.tolist()]

    def measure(self, number: int, answer_s: float) -> None:
        """Learn from an answer to a first try (Karn 1987: only those are unambiguous)."""
        self.first_tries[number] += 1
        self.first_tries_s[number] += answer_s
        if self.first_tries[number] == 1:
            self.answer_s[number] = answer_s
            self.answer_spread_s[number] = answer_s / 2
        else:
            error = abs(self.answer_s[number] - answer_s)
            self.answer_spread_s[number] += _BETA * (error - self.answer_spread_s[number])
            self.answer_s[number] += _ALPHA * (answer_s - self.answer_s[number])

    def least_waits_s(self, numbers: Numbers) -> NDArray[np.float64]:
        """The shortest retry timeout: on a slow link a quicker retry is wasted."""
        waits: NDArray[np.float64] = (
            self.answer_s[numbers] + _SPREAD * self.answer_spread_s[numbers]
        )
        return waits

    def release(self, number: int) -> None:
        """Release a disconnected peer, unless it is still in the table."""
        if self.present[number] or self.held[number]:
            return
        del self._numbers[self.name(number)]
        self._names[number] = None
        for column in self._columns:
            getattr(self, column)[number] = 0
        self._free.append(number)


@dataclass(slots=True)
class TopicStatistics:
    """What was sent under one topic, or as one variable (pMediator §8)."""

    since: float
    acknowledge: bool
    sent: int = 0
    resent: int = 0
    peers: set[str] = field(default_factory=set)  # some of those it went to

    def add(self, peers: Peers, numbers: Numbers) -> None:
        """Remember a recipient, up to a number of them."""
        if len(self.peers) < _LISTED:
            self.peers.update(peers.names(numbers[:_LISTED]))

    def per_minute(self, now: float) -> float:
        """First sends a minute, since the first of them."""
        return 60.0 * self.sent / max(now - self.since, 1.0)
