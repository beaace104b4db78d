"""Sends the load, open loop: each update when it is due, whatever became of those before."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from mercury.load.counters import LoadCounters, TimeHistogram
from mercury.load.drivers.api import Batch, Clock, Driver, Say
from mercury.load.workload import Workload
from mercury.model.errors import LoadError
from mercury.service.clock import epoch_us, now

LATE_MS = 50.0  # own lag beyond which the measurements say more of the generator than of the system
_TICK_S = 0.002
_AT_ONCE = 32_768  # updates of a tick; a generator that is late catches up in such steps
_GRACE_S = 10.0  # a generator that is later than this does not catch up any more
_DRAIN_S = 5.0


def steady_clock() -> Clock:
    """The wall clock at the start, advanced by the monotonic clock."""
    began_us = epoch_us()
    return lambda: began_us + int(now() * 1e6)


@dataclass(slots=True)
class LoadResult:
    """The result of a run."""

    seconds: float  # that were counted
    warm_up_s: float
    offered: int  # updates that were due, warm-up included
    missed: int  # of these, not sent because the generator was too late
    lag: TimeHistogram  # how late the generator itself was
    cpu_share: float  # of one core
    counters: LoadCounters

    @property
    def kept_up(self) -> bool:
        """Whether the generator kept its own schedule."""
        late_us = self.lag.percentile_us(99) or 0.0
        return not self.missed and late_us <= LATE_MS * 1000.0

    def to_json(self) -> dict[str, Any]:
        counters = self.counters
        matches = counters.matches_by_name()
        return {
            "seconds": round(self.seconds, 3),
            "warm_up_s": round(self.warm_up_s, 3),
            "offered": self.offered,
            "offered_per_s": round(self.offered / (self.seconds + self.warm_up_s), 1),
            "sent": counters.sent,
            "unsent": counters.unsent + self.missed,
            "taken": counters.taken,
            "dropped": counters.dropped,
            "matches": matches,
            "matches_per_s": {
                name: round(count / self.seconds, 1) for name, count in matches.items()
            },
            "latency": counters.latency.to_json(),
            "own_lag": self.lag.to_json(),
            "kept_up": self.kept_up,
            "cpu_share": round(self.cpu_share, 3),
            "notes": list(counters.notes),
        }


class Generator:
    """One run of a workload against a driver."""

    def __init__(
        self,
        workload: Workload,
        driver: Driver,
        *,
        seconds: float,
        warm_up_s: float = 0.0,
        say: Say = lambda _: None,
    ) -> None:
        if not seconds > 0.0 or warm_up_s < 0.0:
            raise LoadError("a run takes some time, and a warm-up at least none")
        self._workload, self._driver = workload, driver
        self._seconds, self._warm_up_s = seconds, warm_up_s
        self._say = say
        self._schedule = workload.schedule()
        self._lag = TimeHistogram()
        self._stopping = False
        self._shown = 0  # the second that was shown last

    def stop(self) -> None:
        """End early."""
        self._stopping = True

    async def run(self) -> LoadResult:
        """Declare all entities, send updates for the given time, and wait for the last events."""
        clock = steady_clock()
        # Machine code is made now, not when the first update is due.
        self._workload.movement.positions([0], 0.0)
        try:
            await self._driver.open(self._workload, clock, self._say)
            gc.collect()
            gc.freeze()  # existing objects stay: exempt them from collections
            cpu_begun, begun_us = process_time(), clock()
            ran_s = await self._drive(clock, begun_us)
            cpu_share = (process_time() - cpu_begun) / max((clock() - begun_us) / 1e6, 1e-6)
            await self._driver.drain(_DRAIN_S)
        finally:
            gc.unfreeze()
            await self._driver.close()
        warm_up_s = min(self._warm_up_s, ran_s)
        return LoadResult(
            seconds=max(ran_s - warm_up_s, 1e-6),
            warm_up_s=warm_up_s,
            offered=self._schedule.due_by(ran_s),
            missed=self._schedule.due_by(ran_s) - self._schedule.offered,
            lag=self._lag,
            cpu_share=cpu_share,
            counters=self._driver.counters,
        )

    async def _drive(self, clock: Clock, begun_us: int) -> float:
        """Send updates as they become due; returns how long it took."""
        end_s = self._warm_up_s + self._seconds
        self._driver.counters.count_from_us = begun_us + round(self._warm_up_s * 1e6)
        while True:
            now_s = (clock() - begun_us) / 1e6
            if self._stopping:
                end_s = min(end_s, now_s)
            until_s = min(now_s, end_s)
            sent = self._offer(until_s, clock, begun_us)
            self._show(until_s)
            if now_s >= end_s and (sent < _AT_ONCE or now_s >= end_s + _GRACE_S):
                return end_s
            if sent == _AT_ONCE:
                await asyncio.sleep(0)  # let the drivers read and write
            else:
                spent_s = (clock() - begun_us) / 1e6 - now_s
                await asyncio.sleep(max(_TICK_S - spent_s, 0.0))

    def _offer(self, until_s: float, clock: Clock, begun_us: int) -> int:
        due = self._schedule.take(until_s, _AT_ONCE)
        if not len(due):
            return 0
        lats, lons = self._workload.movement.positions(due.entities, due.times_s)
        times_us = begun_us + np.rint(due.times_s * 1e6).astype(np.int64)
        self._driver.send(Batch(due.entities, lats, lons, times_us, due.times_s))
        self._lag.add(clock() - times_us)
        return len(due)

    def _show(self, until_s: float) -> None:
        """Once a second."""
        second = int(until_s)
        if second == self._shown:
            return
        self._shown = second
        counters = self._driver.counters
        median_us = counters.latency.percentile_us(50)
        latency = "" if median_us is None else f", latency {median_us / 1000:.1f} ms"
        taken = "" if counters.taken is None else f", {counters.taken:,} taken"
        offered = f"{self._schedule.offered:,} updates offered"
        self._say(f"{offered}{taken}, {counters.events:,} events{latency}")
