"""Who is due when: open loop, so nothing that the system does ever moves an update.

Entity i says where it is at `phase_s[i] + k / rate`, for each k from 0. A core: it is told how late
it is and hands out what has become due since.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.model.errors import LoadError


class Due(NamedTuple):
    """Updates that have become due, in order."""

    entities: NDArray[np.int64]
    times_s: FloatArray  # exactly when, counted from the begin

    def __len__(self) -> int:
        return len(self.entities)


class Schedule:
    """The updates of all entities; phases are sorted and shorter than an interval."""

    def __init__(self, phases_s: FloatArray, rate_hz: float) -> None:
        if not 0.0 < rate_hz <= 1000.0:
            raise LoadError(f"a rate of {rate_hz:g} Hz is not more than 0 and at most 1000")
        self._interval_s = 1.0 / rate_hz
        if not len(phases_s) or np.any(np.diff(phases_s) < 0.0):
            raise LoadError("phases of a schedule are sorted, and there is at least one")
        if phases_s[0] < 0.0 or phases_s[-1] >= self._interval_s:
            raise LoadError("a phase is not within the interval between two updates")
        self._phases_s = phases_s
        self.offered = 0  # updates handed out so far

    def due_by(self, until_s: float) -> int:
        """How many updates are due before a time, from the begin."""
        if until_s <= 0.0:
            return 0
        rounds = math.floor(until_s / self._interval_s)
        within_s = until_s - rounds * self._interval_s
        return rounds * len(self._phases_s) + int(np.searchsorted(self._phases_s, within_s))

    def take(self, until_s: float, limit: int) -> Due:
        """What has become due before a time and was not handed out yet; at most so many."""
        count = min(self.due_by(until_s) - self.offered, limit)
        numbers = np.arange(self.offered, self.offered + max(count, 0))
        self.offered += len(numbers)
        rounds, entities = np.divmod(numbers, len(self._phases_s))
        return Due(entities, rounds * self._interval_s + self._phases_s[entities])
