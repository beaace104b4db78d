"""One message to many recipients: the delivery state of each copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mercury.mediator.peers import Numbers, distinct
from mercury.mediator.policy import Policy
from mercury.model.delivery import DeliveryState

Rows = NDArray[np.intp]
_Item = TypeVar("_Item", bound=np.generic)

# As a number of the column's type: NumPy is slow with enums.
WAITING = np.uint16(DeliveryState.WAITING)

_ACKNOWLEDGED = np.uint16(DeliveryState.ACKNOWLEDGED)

# Rows of the two blocks of columns: `times[DUE, row]` costs less than `due[row]`.
ADDRESSED, FIRST_SENT, DUE, SETTLED = range(4)
STATE, REASON, TRIES = range(3)

_Empty = Callable[[], Any]
_NO_PEERS: _Empty = partial(np.empty, 0, np.int32)
_NO_TIMES: _Empty = partial(np.empty, (4, 0))
_NO_NUMBERS: _Empty = partial(np.empty, (3, 0), np.uint16)


@dataclass(slots=True, eq=False)
class Dispatch:
    """A message's content and, in columns, the state of each copy (pMediator §4.1)."""

    id: Hashable
    content: Any
    policy: Policy
    source: str
    topic: str
    priority: int
    posted: float
    expires: float
    stream: str | None  # copies of one stream go one after the other
    number: int = 0  # messages are counted as they are posted
    final: bool = False  # no further recipients will be added
    awaited: str = ""  # its recipient, if that may still connect
    sole: bool = False  # it has one recipient, and leaves the table when that has it
    for_few: bool = False  # who gets it was known when it was posted
    waiting: int = 0  # copies that are not settled
    scheduled: float = math.inf  # when the table must handle it next
    # Peers whose copies have changed since `take_news`: in arrays, and one by one.
    changes: list[Numbers] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    peers: Numbers = field(default_factory=_NO_PEERS)  # ascending
    # Two blocks, as most messages have one copy, and an array costs more than what is in it.
    times: NDArray[np.float64] = field(default_factory=_NO_TIMES)
    numbers: NDArray[np.uint16] = field(default_factory=_NO_NUMBERS)

    @property
    def addressed(self) -> NDArray[np.float64]:
        return _column(self.times, ADDRESSED)

    @property
    def first_sent(self) -> NDArray[np.float64]:
        """NaN: not yet."""
        return _column(self.times, FIRST_SENT)

    @property
    def due(self) -> NDArray[np.float64]:
        """Infinite: without timeout."""
        return _column(self.times, DUE)

    @property
    def settled(self) -> NDArray[np.float64]:
        """NaN: not yet."""
        return _column(self.times, SETTLED)

    @property
    def state(self) -> NDArray[np.uint16]:
        return _column(self.numbers, STATE)

    @property
    def reason(self) -> NDArray[np.uint16]:
        """Index of the table's reasons."""
        return _column(self.numbers, REASON)

    @property
    def tries(self) -> NDArray[np.uint16]:
        return _column(self.numbers, TRIES)

    def __len__(self) -> int:
        return len(self.peers)

    def row(self, peer: int) -> int | None:
        # Of the same type: with another the whole column would be converted.
        row = int(self.peers.searchsorted(np.int32(peer)))
        return row if row < len(self.peers) and self.peers[row] == peer else None

    def rows(self, peers: Numbers) -> Rows:
        """The rows of peers, all of which have a copy."""
        return self.peers.searchsorted(peers)

    def without_copy(self, peers: Numbers) -> Numbers:
        """Those of these peers, each once, that have no copy yet."""
        peers = distinct(peers)
        if not len(self.peers):
            return peers
        rows = np.minimum(self.rows(peers), len(self.peers) - 1)
        without: Numbers = peers[self.peers[rows] != peers]
        return without

    def add(self, peers: Numbers, due: NDArray[np.float64], now: float) -> None:
        """Make copies for peers that have none."""
        count = len(peers)
        times = np.full((4, count), np.nan)
        times[ADDRESSED], times[DUE] = now, due
        numbers = np.zeros((3, count), np.uint16)
        numbers[STATE] = WAITING
        if len(self.peers):
            peers_of_all = np.concatenate([self.peers, peers])
            order = np.argsort(peers_of_all, kind="stable")
            self.peers = peers_of_all[order]
            times = np.concatenate([self.times, times], axis=1)[:, order]
            numbers = np.concatenate([self.numbers, numbers], axis=1)[:, order]
        else:
            self.peers = peers
        self.times, self.numbers = times, numbers
        self.waiting += count
        self.changes.append(peers)

    def remove(self, rows: NDArray[np.bool_]) -> None:
        """Forget settled copies."""
        self.peers = self.peers[~rows]
        self.times, self.numbers = self.times[:, ~rows], self.numbers[:, ~rows]

    def is_waiting(self) -> NDArray[np.bool_]:
        waiting: NDArray[np.bool_] = self.state == WAITING
        return waiting

    def is_over(self, now: float) -> bool:
        """Whether all its copies are settled and nobody will need another."""
        if self.waiting:
            return False
        if self.final or math.isinf(self.expires) or now >= self.expires:
            return True
        return self.sole and len(self) > 0 and bool((self.state == _ACKNOWLEDGED).all())

    def received_before(self, time: float) -> NDArray[np.bool_]:
        """Which copies were acknowledged before a time."""
        received: NDArray[np.bool_] = (self.state == _ACKNOWLEDGED) & (self.settled < time)
        return received

    def next_due(self) -> float:
        """When the first copy is due, or the message expires."""
        if not self.waiting:
            return self.expires
        return min(float(self.due[self.is_waiting()].min()), self.expires)

    def take_changes(self) -> Numbers:
        """The peers whose copies have changed since the last call."""
        changes = [*self.changes, np.array(self.changed, np.int32)]
        self.changes, self.changed = [], []
        return distinct(np.concatenate(changes))


def _column(block: NDArray[_Item], row: int) -> NDArray[_Item]:
    column: NDArray[_Item] = block[row]
    return column


class Completed(NamedTuple):
    """How one copy ended."""

    time: float
    id: Hashable
    peer: str
    state: DeliveryState
    elapsed_s: float
