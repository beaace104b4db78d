"""All parts on one machine, from the first start to the last stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import time
from collections.abc import AsyncIterator
from typing import Any

from mercury.bus import Bus, FromTime, catch_up
from mercury.cli.common import command
from mercury.cli.messages.live_ledger import LedgerReader
from mercury.cli.run.parts import Parts
from mercury.config import Settings
from mercury.model import topics
from mercury.model.errors import MercuryError
from mercury.service.clock import now_us
from mercury.service.status import read_status
from mercury.service.stop_signals import on_stop_signal
from mercury.service.supervisor import Part, Supervisor, raise_if_failed

_READY_S = 90.0  # a busy machine may be slow
_LOOK_EVERY_S = 0.5
_LAST_REPORTS_US = 120_000_000  # each part has said something in this time, also while all stop


class Machine:
    """Parts that run, and what they say of themselves."""

    def __init__(self, bus: Bus, parts: Parts, supervisor: Supervisor) -> None:
        self.parts = parts
        self.supervisor = supervisor
        self.stop = asyncio.Event()  # asked for by a person, or because something went wrong
        self.begun = time.monotonic()
        self.ended: float | None = None
        self.last: dict[str, Any] = {}  # what they said when they stopped
        self._bus = bus
        self._since_us = now_us()
        self._ledger = LedgerReader(bus, self._since_us)

    async def ready(self, *parts: Part, timeout_s: float | None = None) -> bool:
        """Wait until parts that were started here serve; False if all is to stop before."""
        waiting = [asyncio.create_task(part.ready.wait()) for part in parts]
        stopping = asyncio.create_task(self.stop.wait())
        try:
            async with asyncio.timeout(timeout_s):
                while waiting and not stopping.done():
                    await asyncio.wait([*waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
                    waiting = [task for task in waiting if not task.done()]
        except TimeoutError:
            late = ", ".join(part.name for part in parts if not part.ready.is_set())
            raise MercuryError(f"{late} did not come up within {timeout_s:g} s") from None
        finally:
            for task in (*waiting, stopping):
                task.cancel()
        return not self.stop.is_set()

    async def wait(self, seconds: float | None) -> None:
        """Wait until it is to stop, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    def result(self) -> dict[str, Any]:
        """What the parts and the ledger say, up to now."""
        numbers = {}
        since_us = max(self._since_us, now_us() - _LAST_REPORTS_US)
        status = self._bus.subscribe((topics.STATUS,), start=FromTime(since_us))
        for records in catch_up(status):
            for report in filter(None, map(read_status, records)):
                numbers[report.address] = report.numbers
        status.close()
        parts = self.supervisor.parts
        return {
            "seconds": round((self.ended or time.monotonic()) - self.begun, 1),
            "restarts": {part.name: part.restarts for part in parts if part.restarts},
            "parts": numbers,
            "ledger": self._ledger.catch_up().summary().as_dict(),
        }

    def close(self) -> None:
        """Let go of the bus."""
        self._ledger.close()


@contextlib.asynccontextmanager
async def running(
    settings: Settings, parts: Parts, environment: dict[str, str]
) -> AsyncIterator[Machine]:
    """Run parts: those that nothing works without are up when this begins, and all end with it."""
    with (
        contextlib.closing(command.bus_of(settings)) as bus,
        contextlib.closing(Machine(bus, parts, Supervisor(environment))) as machine,
    ):
        on_stop_signal(machine.stop.set)
        machine.supervisor.failed.add_done_callback(lambda _: machine.stop.set())
        looking = asyncio.create_task(_stop_without_reader(machine))
        try:
            for part in parts.all():
                await machine.supervisor.start(part)
            await machine.ready(*parts.core, timeout_s=_READY_S)
            machine.begun = time.monotonic()
            yield machine
        finally:
            machine.ended = time.monotonic()
            await machine.supervisor.stop()
            looking.cancel()
        raise_if_failed(machine.supervisor)
        machine.last = machine.result()
        if looking.done() and not looking.cancelled():
            raise BrokenPipeError


def say(text: str) -> None:
    """Tell whoever sits there; parts must be stopped in good order also if nobody does any more."""
    with contextlib.suppress(OSError, SystemExit):  # rich ends the process without a reader
        command.progress.print(text, markup=False, soft_wrap=True)


async def _stop_without_reader(machine: Machine) -> None:
    """End as other commands do when the reader of their output has gone, as `head` does."""
    outputs = select.poll()
    for file in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(file).st_mode):
                outputs.register(file, 0)  # only of its end
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        if outputs.poll(0):
            machine.stop.set()
            return
