"""The frame every service stands in: tasks, status, metrics, a clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from mercury.bus import Bus
from mercury.model import topics
from mercury.model.errors import BusError
from mercury.model.message import Address, Attributes, Kind, Message, Priority
from mercury.service import tie
from mercury.service.metrics import MetricsServer
from mercury.service.statistics import Statistics
from mercury.service.stop_signals import on_stop_signal
from mercury.wire import encode
from mercury.wire.records import message_route

log = logging.getLogger(__name__)

STATUS_INTERVAL_S = 5.0
_GC_THRESHOLDS = (20_000, 20, 100)


class Service(ABC):
    """A part of Mercury that runs until it is told to stop."""

    part: str  # "adapter", "broker", ...

    def __init__(self, bus: Bus, address: Address, *, metrics_port: int | None = None) -> None:
        self.bus = bus
        self.address = address
        self.metrics = (
            MetricsServer(self.part, self.statistics) if metrics_port is not None else None
        )
        self._metrics_port = metrics_port
        self._tasks: set[asyncio.Task[None]] = set()
        self.has_started = asyncio.Event()
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()

    @property
    def started(self) -> bool:
        """Whether `run` got so far."""
        return self.has_started.is_set()

    @abstractmethod
    def statistics(self) -> Statistics:
        """The service's numbers now."""

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def _stop(self) -> None: ...

    async def start(self) -> None:
        """Begin to serve."""
        if self.metrics is not None:
            assert self._metrics_port is not None
            await self.metrics.start("127.0.0.1", self._metrics_port)
        try:
            await self._start()
        except BaseException:
            # Nothing may stay open: the loop of a process that fails to start must be able to end.
            await self._end_tasks()
            await self._stop()
            if self.metrics is not None:
                await self.metrics.stop()
            raise
        if self.metrics is not None:
            self.metrics.ready = True
        self.spawn(self._report_status())

    async def stop(self) -> None:
        """Finish what was begun, flush, say goodbye."""
        self._stopping.set()
        await self._end_tasks()
        try:
            await self._stop()
            self._append_status()
            await self.bus.flush()
        finally:
            if self.metrics is not None:
                await self.metrics.stop()

    async def run(self) -> None:
        """Serve until a signal or a failure."""
        on_stop_signal(self._stopping.set)
        starting = asyncio.create_task(self.start())
        told = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not starting.done():  # told to stop before it was up
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        starting.result()
        self.has_started.set()
        tie.say_ready()
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
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            log.error("%s fails", self.address, exc_info=task.exception())
            self._stopping.set()

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _report_status(self) -> None:
        while True:
            try:
                self._append_status()
            except BusError as error:
                log.warning("cannot report status: %s", error)
            await asyncio.sleep(STATUS_INTERVAL_S)

    def _append_status(self) -> None:
        message = Message(
            kind=Kind.REPORT,
            source=self.address,
            destination=Address.everyone(),
            topic=topics.STATUS,
            priority=Priority.BACKGROUND,
            payload=Attributes(self.statistics().flat()),
        )
        self.bus.append(
            topics.STATUS, encode(message), str(self.address).encode(), (message_route(message),)
        )
