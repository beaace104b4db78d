"""What a driver is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.load.tally import Tally
from mercury.load.workload import Workload

Clock = Callable[[], int]  # microseconds since the epoch, never going back
Say = Callable[[str], None]

# Rows that wait because the other side is slow; what comes beyond is not sent, and counted.
BACKLOG_ROWS = 1_000_000


class Batch(NamedTuple):
    """Updates that are due, in order."""

    entities: NDArray[np.int64]
    lats: FloatArray
    lons: FloatArray
    times_us: NDArray[np.int64]  # when they were due
    times_s: FloatArray  # the same, counted from the begin of the run

    def __len__(self) -> int:
        return len(self.entities)

    def some(self, rows: slice | NDArray[np.bool_]) -> Batch:
        """A part of them."""
        entities, lats, lons, times_us, times_s = self
        return Batch(entities[rows], lats[rows], lons[rows], times_us[rows], times_s[rows])


class Driver(Protocol):
    """Brings updates to a system and counts what comes of them."""

    @property
    def tally(self) -> Tally:
        """What it has counted so far."""

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Reach the system and declare who there is; LoadError if that cannot be."""

    def send(self, batch: Batch) -> None:
        """Hand over updates. Never waits: what finds no room is counted as unsent."""

    async def settle(self, timeout_s: float) -> None:
        """Wait for what is still on its way."""

    async def close(self) -> None:
        """Withdraw who was declared, and leave."""
