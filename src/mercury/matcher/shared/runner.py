"""Runs one stage in a process: as a member of its group, for the partitions that it is given.

What follows from records is durable before the state that knows of them, and that before the mark
that they are done. Whoever takes a partition over finds the newest state, goes on behind it, and
says again at most what was said since: its readers recognise that (wire/origins.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mercury.bus import Bus, Consumer, Record
from mercury.matcher.shared.stage import Parcel, StageNumber
from mercury.matcher.shared.state_log import StateLog
from mercury.model.errors import BusFullError, BusUnavailableError
from mercury.wire.worker_frames import time_frame

log = logging.getLogger(__name__)

TIME_S = 0.25  # so often a partition is told how late it is
_FIRST_BATCH, _BATCH = 16, 512
_TICK_S = 0.1  # what is read at once takes about so long
_PAUSE_S = 0.02  # between turns, if there is no more: few records of many rows cost the least
_STILL_S = 0.4  # no record for so long, though time is told: our shares are to move
_FULL_S = 0.1


class Stage(Protocol):
    """One partition's worth of a stage."""

    @property
    def dropped(self) -> Counter[str]: ...

    def process(self, records: list[Record]) -> list[Parcel]: ...

    def snapshot(self) -> bytes: ...

    def restore(self, data: bytes) -> object: ...

    def statistics(self) -> dict[str, float]: ...


@dataclass(slots=True)
class _Unit:
    """A partition that is ours."""

    stage: Stage
    taken: int  # as Consumer.shares has it
    key: bytes  # one that leads to this partition
    offset: int = -1  # of the last record that was processed
    saved: int = -1  # of the last that is in a state


class StageRunner:
    """A stage's share of the work."""

    def __init__(
        self,
        bus: Bus,
        states: StateLog,
        number: StageNumber,
        topic: str,
        make: Callable[[int], Stage],
        *,
        snapshot_interval_s: float,
        clock: Callable[[], int],
    ) -> None:
        self.number = number
        self.counters: Counter[str] = Counter()
        self.units: dict[int, _Unit] = {}
        self._bus = bus
        self._states = states
        self._topic = topic
        self._make = make
        self._interval_s = snapshot_interval_s
        self._clock = clock
        self._consumer: Consumer | None = None
        self._tick: asyncio.Future[None] | None = None  # the work with one batch

    def join(self) -> None:
        """Become a member of the group."""
        self._consumer = self._bus.subscribe(
            (self._topic,), group=f"matcher-{self.number.name.lower()}", start="earliest"
        )

    async def run(self) -> None:
        """Work until cancelled."""
        consumer = self._consumer
        assert consumer is not None
        loop = asyncio.get_running_loop()
        saved_at = heard_at = told_at = loop.time()
        batch = _FIRST_BATCH
        while True:
            records = await consumer.read(batch, timeout_s=TIME_S)
            begun = loop.time()
            if records:
                # Told to stop in the midst of it, we finish it: what follows must not be lost.
                self._tick = asyncio.ensure_future(self._take(records, consumer))
                await asyncio.shield(self._tick)
                heard_at = loop.time()
                # Who is deaf for seconds would be taken for dead, and its work be done again.
                within = int(_TICK_S / max(heard_at - begun, 1e-6) * len(records))
                all_read = len(records) < batch
                batch = max(1, min(2 * batch, within, _BATCH))
                if all_read and heard_at - begun < _PAUSE_S:
                    await asyncio.sleep(begun + _PAUSE_S - heard_at)
            now = loop.time()
            if now - told_at >= TIME_S:
                told_at = now
                self._tell_time()
            still = now - heard_at >= _STILL_S
            if self._unsaved() and (still or now - saved_at >= self._interval_s):
                await self.save()
                saved_at = loop.time()

    async def leave(self) -> None:
        """Hand everything over in good order."""
        if self._consumer is None:
            return
        if self._tick is not None:
            await asyncio.wait([self._tick])
        if self._tick is None or self._tick.exception() is None:
            await self.save()
            await self._flush()
        # Else what follows from the last batch may be lost: whoever takes over does it again.
        self._consumer.close()

    async def save(self) -> None:
        """Make what we know durable, and mark what it came from as done."""
        assert self._consumer is not None
        await self._flush()  # a state must not know of what others may never hear
        for partition, unit in self.units.items():
            if unit.offset > unit.saved:
                place = (int(self.number), partition)
                size = self._states.append(place, unit.offset, unit.stage.snapshot())
                unit.saved = unit.offset
                self.counters["states_saved"] += 1
                self.counters["state_bytes"] += size
        self._consumer.commit()

    async def _take(self, records: list[Record], consumer: Consumer) -> None:
        assignments = consumer.assignments()
        for partition in [one for one in self.units if (self._topic, one) not in assignments]:
            del self.units[partition]
        by_partition: dict[int, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        await self._take_over(by_partition, assignments.get)
        for partition, some in by_partition.items():
            unit = self.units.get(partition)
            if unit is None:  # lost again
                continue
            if some[0].offset <= unit.offset:
                self.counters["records_again"] += len(some)
                some = [record for record in some if record.offset > unit.offset]
                if not some:
                    continue
            parcels = unit.stage.process(some)
            unit.offset = some[-1].offset
            self.counters["records"] += len(some)
            await self._append_all(parcels)

    async def _take_over(
        self, found: dict[int, list[Record]], taken_of: Callable[[tuple[str, int]], int | None]
    ) -> None:
        """Find the state of partitions that are newly ours."""
        new: dict[int, int] = {}
        for partition in found:
            taken = taken_of((self._topic, partition))
            known = self.units.get(partition)
            if taken is not None and (known is None or known.taken != taken):
                new[partition] = taken
        if not new:
            return
        number = int(self.number)
        await self._states.catch_up()
        for partition, taken in new.items():
            unit = _Unit(self._make(partition), taken, found[partition][0].key)
            state = self._states.newest((number, partition))
            if state is not None:
                unit.stage.restore(state.data())
                unit.offset = unit.saved = state.offset
                self.counters["taken_over"] += 1
            self.units[partition] = unit

    def _tell_time(self) -> None:
        assert self._consumer is not None
        frame = time_frame(self._clock())
        for unit in self.units.values():
            try:
                self._bus.append(self._topic, frame, unit.key)
            except BusFullError as error:
                log.warning("time is not told: %s", error)

    def _unsaved(self) -> bool:
        return any(unit.offset > unit.saved for unit in self.units.values())

    async def _append_all(self, parcels: list[Parcel]) -> None:
        told = False
        for parcel in parcels:
            if parcel.topic == self._topic and told:
                # What a colleague does with this must not overtake what we have told before.
                await self._flush()
                told = False
            await self._append(parcel)
            told |= parcel.topic != self._topic

    async def _flush(self) -> None:
        while True:
            try:
                await self._bus.flush()
            except BusUnavailableError as error:
                log.warning("waiting: %s", error)
            else:
                return

    async def _append(self, parcel: Parcel) -> None:
        while True:
            try:
                self._bus.append(parcel.topic, parcel.value, parcel.key, parcel.headers)
            except BusFullError as error:
                log.warning("waiting: %s", error)
                await asyncio.sleep(_FULL_S)
            else:
                return
