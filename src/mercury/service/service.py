"""The base of every service: tasks, status, metrics, a clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from mercury.bus import Bus, Consumer, Record
from mercury.model import topics
from mercury.model.errors import BusAwayError, BusError, MercuryError
from mercury.model.message import Address
from mercury.service import supervisor_link
from mercury.service.clock import now, now_us
from mercury.service.health import Health
from mercury.service.metrics import MetricsServer
from mercury.service.stall import StallMeter
from mercury.service.statistics import Statistics
from mercury.service.status import State, Status, new_identity
from mercury.service.stop_signals import on_stop_signal
from mercury.wire import encode
from mercury.wire.records import message_route

log = logging.getLogger(__name__)

STATUS_INTERVAL_S = 5.0
_RETRY_S = 1.0  # until a failed bus is tried again
_GOODBYE_S = 5.0
_LAST_TRY_S = 0.5  # if the bus failed before
_GC_THRESHOLDS = (20_000, 20, 100)


class Service(ABC):
    """A part of Mercury that runs until it is asked to stop."""

    part: str  # "adapter", "broker", ...

    def __init__(
        self,
        bus: Bus,
        address: Address,
        *,
        metrics: tuple[str, int] | None = None,
        stall_probe_s: float = 0.1,
    ) -> None:
        self.bus = bus
        self.address = address
        self.health = Health()
        self.stalls = StallMeter(stall_probe_s)
        self.state: State = "starting"
        self.metrics = metrics and MetricsServer(
            self.part, metrics, self.statistics, health=self.condition
        )
        self._identity = new_identity(now_us())
        self._report_due = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.has_started = asyncio.Event()
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()

    @abstractmethod
    def statistics(self) -> Statistics:
        """The service's numbers now."""

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def _stop(self) -> None: ...

    def trouble(self) -> str:
        """One sentence on a problem of this kind of service; empty if there is none."""
        return ""

    def about(self) -> dict[str, Any]:
        """Further fields of its status: `listens`."""
        return {}

    def problem(self) -> str:
        """One sentence on the service's problem; empty if there is none."""
        if self._failure is not None:
            return str(self._failure).split("\n", 1)[0] or type(self._failure).__name__
        if self.state == "running" and self._stopping.is_set():
            return "it is stopping"
        found = self.health.problem(now(), self.stalls.longest_s)
        return found or self.bus.trouble() or self.trouble()

    def condition(self) -> tuple[str, str]:
        """For `/healthz`: "ok", "starting", "failing" or "stopped", and why."""
        problem = self.problem()
        return ("failing" if problem else "ok") if self.state == "running" else self.state, problem

    async def read(self, consumer: Consumer, max_records: int = 512) -> list[Record]:
        """Wait for a consumer's next records, and note how far it is behind."""
        self.health.waits(consumer, now())
        records = await consumer.read(max_records)
        if records:
            self.health.took(consumer, now(), (now_us() - records[0].timestamp_us) / 1e6)
        return records

    def bus_failed(self, error: BusError) -> None:
        """An append failed: report it until one succeeds."""
        if not self.health.bus_fails(now()):
            self._report_due.set()
        self.health.bus_failed(now(), error)

    async def start(self) -> None:
        if self.metrics is not None:
            await self.metrics.start()
        self.spawn(self._report_status())
        try:
            await self._start()
        except BaseException as error:
            # Close everything: the loop of a process that fails to start must be able to end.
            await self._end_tasks()
            await self._stop()
            if isinstance(error, Exception):
                self._failure = error
            await self._say_goodbye()
            if self.metrics is not None:
                await self.metrics.stop()
            raise
        self.state = "running"
        self.spawn(self.stalls.run())  # after the start, which may block the loop
        self._report_due.set()

    async def stop(self) -> None:
        """Finish work, flush, report that it has stopped."""
        self._stopping.set()
        await self._end_tasks()
        try:
            await self._stop()
            await self._say_goodbye()
        finally:
            if self.metrics is not None:
                await self.metrics.stop()

    async def run(self) -> None:
        """Serve until a signal or a failure."""
        on_stop_signal(self._stopping.set)
        starting = asyncio.create_task(self.start())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():  # asked to stop before it was up
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            if self._failure is not None:  # not a stop: a task failed meanwhile
                raise self._failure
            return
        starting.result()
        self.has_started.set()
        supervisor_link.say_ready()
        # What was made at the start stays: not looking at it again and again keeps the pauses of
        # the garbage collector short.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        log.info("%s is up", self.address)
        await self._stopping.wait()
        await self.stop()
        log.info("%s stopped", self.address)
        if self._failure is not None:
            raise self._failure

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task; its failure stops the service."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            if isinstance(error, MercuryError):  # `run` raises it: the command ends with it
                log.info("%s fails: %s", self.address, error)
            else:
                log.error("%s fails", self.address, exc_info=error)
            self._stopping.set()

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _report_status(self) -> None:
        """Report the status at intervals; a failed report is part of the health."""
        works = True
        while True:
            self._report_due.clear()
            try:
                if works:
                    self._append_status()
                self.health.flushing(now())
                await self.bus.flush()
                self.health.flushed()
            except BusError as error:
                if works and not isinstance(error, BusAwayError):
                    log.warning("cannot report status: %s", error)
                works = False
                self.health.bus_failed(now(), error)
                await asyncio.sleep(_RETRY_S)
                continue
            if works:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._report_due.wait(), STATUS_INTERVAL_S)
            works = True

    async def _say_goodbye(self) -> None:
        """Report that it has stopped; if that fails, closing the bus raises."""
        wait_s = _LAST_TRY_S if self.health.problem(now()) else _GOODBYE_S
        self.state = "stopped"
        with suppress(BusError, TimeoutError):
            self._append_status()
            await asyncio.wait_for(self.bus.flush(), wait_s)

    def _append_status(self) -> None:
        stopped = self.state == "stopped"
        status = Status(
            **self._identity,
            part=self.part,
            state=self.state,
            interval_s=STATUS_INTERVAL_S,
            behind_s=round(self.health.behind_s(now()), 3),
            stall_s=round(self.stalls.longest_s, 3),
            problem="" if stopped and self._failure is None else self.problem(),
            metrics_port=0 if self.metrics is None or stopped else self.metrics.port,
            numbers=self.statistics().flat(),
            **({} if stopped else self.about()),
        )
        message = status.message(self.address)
        self.bus.append(
            topics.STATUS, encode(message), str(self.address).encode(), (message_route(message),)
        )
