"""One message to many recipients: the delivery state of each copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.mediator.peers import Numbers, distinct
from mercury.mediator.policy import Policy
from mercury.model.delivery import DeliveryState

Rows = NDArray[np.intp]

# As a number of the column's type: NumPy is slow with enums.
WAITING = np.uint8(DeliveryState.WAITING)

_Column = Callable[[], Any]
_REALS: _Column = partial(np.empty, 0)
_NUMBERS: _Column = partial(np.empty, 0, np.int32)
_STATES: _Column = partial(np.empty, 0, np.uint8)
_SMALL: _Column = partial(np.empty, 0, np.uint16)


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
    final: bool = False  # no further recipients will be added
    awaited: str = ""  # its recipient, if that may still connect
    waiting: int = 0  # copies that are not settled
    scheduled: float = math.inf  # when the table must handle it next
    # Peers whose copies have changed since `take_news`: in arrays, and one by one.
    changes: list[Numbers] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    peers: Numbers = field(default_factory=_NUMBERS)  # ascending
    state: NDArray[np.uint8] = field(default_factory=_STATES)
    reason: NDArray[np.uint16] = field(default_factory=_SMALL)  # index of the table's reasons
    tries: NDArray[np.uint16] = field(default_factory=_SMALL)
    addressed: NDArray[np.float64] = field(default_factory=_REALS)
    first_sent: NDArray[np.float64] = field(default_factory=_REALS)  # NaN: not yet
    due: NDArray[np.float64] = field(default_factory=_REALS)  # infinite: without timeout
    settled: NDArray[np.float64] = field(default_factory=_REALS)  # NaN: not yet

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
        fresh = {
            "peers": peers,
            "state": np.full(count, DeliveryState.WAITING, np.uint8),
            "reason": np.zeros(count, np.uint16),
            "tries": np.zeros(count, np.uint16),
            "addressed": np.full(count, now),
            "first_sent": np.full(count, np.nan),
            "due": due,
            "settled": np.full(count, np.nan),
        }
        if len(self.peers):
            order = np.argsort(np.concatenate([self.peers, peers]), kind="stable")
            fresh = {
                name: np.concatenate([getattr(self, name), new])[order]
                for name, new in fresh.items()
            }
        for name, column in fresh.items():
            setattr(self, name, column)
        self.waiting += count
        self.changes.append(peers)

    def is_waiting(self) -> NDArray[np.bool_]:
        waiting: NDArray[np.bool_] = self.state == WAITING
        return waiting

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


class Completed(NamedTuple):
    """How one copy ended."""

    time: float
    id: Hashable
    peer: str
    state: DeliveryState
    elapsed_s: float
