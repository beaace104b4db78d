"""All parts on one machine: which, on which ports, from the first start to the last stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import stat
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mercury.bus import Bus, FromTime, catch_up
from mercury.bus.embedded.inspection import inspect_bus
from mercury.cli.common import command
from mercury.config import Settings
from mercury.config.section import ServiceSection
from mercury.java.runtime import java_problem
from mercury.model import topics
from mercury.model.errors import (
    AddressInUseError,
    BusError,
    ConfigurationError,
    MercuryError,
    PipelineError,
)
from mercury.net import bind_udp
from mercury.net.ports import bind_tcp
from mercury.service.claim import claimed
from mercury.service.clock import now_us
from mercury.service.message_trail import LedgerReader
from mercury.service.status import read_status
from mercury.service.stop_signals import on_stop_signal
from mercury.service.supervisor import Part, Supervisor

_READY_S = 90.0  # a busy machine may be slow
_LOOK_EVERY_S = 0.5
_LAST_REPORTS_US = 120_000_000  # each part has reported in this time, also while all stop
_GATEWAY_BESIDE = 80  # the default ports are as far apart
_GATEWAY_TRIES = 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclass(slots=True)
class Parts:
    core: list[Part]  # without these nothing works
    matcher: Part | None
    gateway: str | None  # where the matcher opens one
    pipeline: Part | None
    without: list[str] = field(default_factory=list)  # what cannot run here, and why

    def all(self) -> list[Part]:
        """All of them, in the order of starting."""
        late = (self.matcher, self.pipeline)
        return [*self.core, *(part for part in late if part is not None)]


@contextlib.contextmanager
def claimed_parts(settings: Settings, config: Path | None, **options: Any) -> Iterator[Parts]:
    """Claim the bus on this machine, and plan the parts to run on it."""
    if settings.bus.uri.startswith("memory:"):
        raise ConfigurationError("several processes share the bus: use an embedded: bus or Kafka")
    if settings.adapter.port == 0:
        raise ConfigurationError("the adapter needs a fixed port here, not 0")
    with claimed(settings.bus.uri) as write:
        try:
            parts = plan(settings, config, **options)
        except AddressInUseError as error:
            other = (settings.adapter.port + 100) % 65536
            hint = f"end that, or choose others: `mercury up --port {other} --bus embedded:PATH`"
            raise AddressInUseError(f"{error}: {hint}") from None
        write([part.name for part in parts.all()])
        yield parts


def plan(
    settings: Settings,
    config: Path | None = None,
    *,
    brokers: int = 1,
    matcher: bool = True,
    pipeline: bool | None = None,
) -> Parts:
    """Choose parts and ports; a port that another process has is an error.

    Arguments:
        pipeline: None runs it if Java and Spark are installed, and prints why not.
    """
    bind_udp(settings.adapter.host, settings.adapter.port).close()
    common = ["--bus", settings.bus.uri]
    if config is not None:
        common += ["--config", str(config)]
    core = []
    for number in range(brokers):
        name = f"broker-{number + 1}"
        arguments = ["broker", *common, "--id", name]
        if settings.broker.metrics_port:  # the brokers' ports follow each other
            _check_metrics(settings.broker, number)
            arguments += ["--metrics-port", str(settings.broker.metrics_port + number)]
        core.append(Part(name, arguments))
    core.append(Part("adapter", ["adapter", *common, "--port", str(settings.adapter.port)]))
    parts = Parts(core, None, None, None)
    _check_metrics(settings.adapter)
    if matcher and find_spec("numba") is None:
        parts.without.append("the matcher: it needs numba: pip install 'mercury-messaging[server]'")
    elif matcher:
        _check_metrics(settings.matcher)
        arguments = ["matcher", *common]
        if settings.matcher.gateway:
            gateway_port = _gateway_port(settings)
            parts.gateway = f"http://{settings.gateway.host}:{gateway_port}"
            arguments += ["--gateway-port", str(gateway_port)]
        parts.matcher = Part("matcher", arguments)
    if pipeline is not False:
        missing = _missing_for_pipeline(settings)
        if missing is None:
            _check_metrics(settings.pipeline)
            parts.pipeline = Part("pipeline", ["pipeline", *common])
        elif pipeline:
            raise PipelineError(f"the pipeline cannot run: {missing}")
        else:
            parts.without.append(f"the pipeline: {missing}")
    return parts


def adapter_uri(settings: Settings) -> str:
    """The adapter's address for clients on this machine."""
    host = settings.adapter.host
    return f"udp://{_EVERYWHERE.get(host, host)}:{settings.adapter.port}"


def _check_metrics(part: ServiceSection, beside: int = 0) -> None:
    if part.metrics_port:
        bind_tcp(part.metrics_host, part.metrics_port + beside, "metrics").close()


def _gateway_port(settings: Settings) -> int:
    """The gateway's port; if only the adapter's was chosen, one beside it, for a second Mercury."""
    host, port = settings.gateway.host, settings.gateway.port
    beside = settings.adapter.port + _GATEWAY_BESIDE
    if settings.origin("gateway.port") != "default" or beside == port:
        bind_tcp(host, port, "the gateway").close()
        return port
    for tried in range(beside, beside + _GATEWAY_TRIES):
        try:
            bind_tcp(host, tried % 65536, "the gateway").close()
        except AddressInUseError:
            continue
        return tried % 65536
    raise ConfigurationError(f"no TCP port from {beside} on is free for the gateway")


def _missing_for_pipeline(settings: Settings) -> str | None:
    """Why the pipeline cannot run here; None if it can."""
    folders = (settings.pipeline.checkpoint, settings.pipeline.history_folder)
    if not settings.bus.uri.startswith("embedded:") and None in folders:
        return "with this bus it needs pipeline.checkpoint and pipeline.history_folder"
    for package in ("pandas", "pyarrow", "pyspark"):
        if find_spec(package) is None:
            return f"it needs {package}: pip install 'mercury-messaging[pipeline]'"
    return java_problem() or None


class Machine:
    """The running parts, and their status reports."""

    def __init__(self, bus: Bus, parts: Parts, supervisor: Supervisor) -> None:
        self.parts = parts
        self.supervisor = supervisor
        self.stop = asyncio.Event()  # asked for by a person, or because something went wrong
        self.begun = time.monotonic()
        self.ended: float | None = None
        self.last: dict[str, Any] = {}  # their last statistics
        self._bus = bus
        self._since_us = now_us()
        self._ledger = LedgerReader(bus, self._since_us)

    async def ready(self, *parts: Part, timeout_s: float | None = None) -> bool:
        """Wait until parts that were started here serve; False if all is to stop before."""

        async def all_ready() -> None:
            for part in parts:
                await part.ready.wait()

        either = [asyncio.create_task(one) for one in (all_ready(), self.stop.wait())]
        first = asyncio.FIRST_COMPLETED
        try:
            done, _ = await asyncio.wait(either, timeout=timeout_s, return_when=first)
        finally:
            for task in either:
                task.cancel()
        if not done:
            late = ", ".join(part.name for part in parts if not part.ready.is_set())
            raise MercuryError(f"{late} did not come up within {timeout_s:g} s")
        return not self.stop.is_set()

    def result(self) -> dict[str, Any]:
        """The statistics of the parts and the ledger, up to now."""
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
        self._ledger.close()


@contextlib.asynccontextmanager
async def running(
    settings: Settings, parts: Parts, environment: dict[str, str]
) -> AsyncIterator[Machine]:
    """Run parts: the required ones are up when this begins, and all end with it."""
    scheme, _, path = settings.bus.uri.partition(":")
    if scheme == "embedded" and path and (problem := inspect_bus(Path(path), "").problem):
        hint = f"`mercury doctor --bus {settings.bus.uri}` says what to type"
        raise type(problem)(f"{problem}: {hint}")  # once; else each part would say it
    logging.getLogger("mercury.bus").setLevel(logging.ERROR)  # its parts say that it is away
    with (
        contextlib.closing(command.bus_of(settings)) as bus,
        contextlib.closing(Machine(bus, parts, Supervisor(environment))) as machine,
    ):
        for one in parts.without:
            say(f"without {one}")
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
        if _reader_has_gone():  # first: a part may have failed for want of it
            raise BrokenPipeError
        if machine.supervisor.failed.done():
            raise MercuryError(machine.supervisor.failed.result())
        try:
            machine.last = machine.result()
        except BusError as error:
            seconds = round(machine.ended - machine.begun, 1)
            machine.last = {"seconds": seconds, "problem": str(error)}


def say(text: str) -> None:
    """Print for people; parts must be stopped in order also if the terminal is gone."""
    with contextlib.suppress(OSError, SystemExit):  # rich ends the process without a reader
        command.progress.print(text)


async def _stop_without_reader(machine: Machine) -> None:
    """End as other commands do when the reader of their output has gone, as `head` does."""
    while not _reader_has_gone():  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY_S)
    machine.stop.set()


def _reader_has_gone() -> bool:
    outputs = select.poll()
    for file in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(file).st_mode):
                outputs.register(file, 0)  # only of its end
    return bool(outputs.poll(0))
