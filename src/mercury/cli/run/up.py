"""`mercury up`: all parts on one machine, supervised."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from mercury.bus import Consumer, FromTime
from mercury.cli.common import command
from mercury.cli.common.spinner import waiting
from mercury.cli.messages.live_ledger import LedgerReader
from mercury.config import Settings
from mercury.java.runtime import find_java
from mercury.model import topics
from mercury.model.errors import ConfigurationError, JavaError, PacketError, PipelineError
from mercury.model.message import Address
from mercury.service.clock import now_us
from mercury.service.supervisor import Part, Supervisor, raise_if_failed
from mercury.wire import decode

_ENDS = {
    "expired": "expired",
    "refused": "refused",
    "unreachable": "unreachable",
    "waiting": "still waiting",
}
_READY_S = 90.0  # Spark may be slow on a busy machine


def up(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    port: Annotated[int | None, typer.Option(help="UDP port of the adapter")] = None,
    brokers: Annotated[int, typer.Option(min=1, max=64, help="Brokers that share the work")] = 1,
    vehicles: Annotated[
        int, typer.Option(min=0, help="Also simulate a city with so many vehicles")
    ] = 0,
    event: Annotated[
        str | None, typer.Option(help="Something to sense in that city, in metres", metavar="X,Y,R")
    ] = None,
    event_after: Annotated[float, typer.Option(min=0.0, help="Seconds until it happens")] = 10.0,
    event_kind: Annotated[str, typer.Option(help="What is sensed")] = "emergency",
    jam: Annotated[
        str | None, typer.Option(help="A jam that nobody reports, in metres", metavar="X,Y,R")
    ] = None,
    jam_after: Annotated[float, typer.Option(min=0.0, help="Seconds until it forms")] = 10.0,
    link: command.LinkOption = None,
    antenna: command.AntennaOption = None,
    with_pipeline: Annotated[
        bool | None,
        typer.Option("--pipeline/--no-pipeline", help="Run Spark, too; default if it is there"),
    ] = None,
    with_matcher: Annotated[
        bool, typer.Option("--matcher/--no-matcher", help="Run matching of what moves, too")
    ] = True,
    seed: Annotated[int | None, typer.Option(min=0, help="Same seed, same city")] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the parts' logs")] = False,
) -> None:
    """Run all parts on this machine until Ctrl-C, or for a time, and sum up."""
    settings = command.settings_for(
        config,
        bus__uri=bus,
        adapter__port=port,
        sim__seed=seed,
        sim__link=link,
        **command.antenna_settings(antenna),
    )
    if settings.bus.uri.startswith("memory:"):
        raise ConfigurationError(
            "mercury up runs several processes: use an embedded: bus or a kafka: bus"
        )
    if settings.adapter.port == 0:
        raise ConfigurationError("mercury up needs a fixed adapter port, not 0")
    if event is not None and not vehicles:
        raise ConfigurationError("--event needs --vehicles that sense it")
    if jam is not None and not vehicles:
        raise ConfigurationError("--jam needs --vehicles that stand in it")
    if (link is not None or antenna is not None) and not vehicles:
        raise ConfigurationError("--link and --antenna need --vehicles that have a link")
    if settings.bus.uri.startswith("embedded:"):
        Path(settings.bus.uri.removeprefix("embedded:")).parent.mkdir(parents=True, exist_ok=True)
    common = ["--bus", settings.bus.uri]
    if config is not None:
        common += ["--config", str(config)]
    adapter = Part("adapter", ["adapter", *common, "--port", str(settings.adapter.port)])
    parts = [
        Part(f"broker-{number}", ["broker", *common, "--id", f"broker-{number}"])
        for number in range(1, brokers + 1)
    ]
    matcher = _matcher(settings, common) if with_matcher else None
    sim = None
    if vehicles:
        event_type = []
        if event is not None:
            event_type += ["--event", event, "--event-after", str(event_after)]
            event_type += ["--event-kind", event_kind]
        if jam is not None:
            event_type += ["--jam", jam, "--jam-after", str(jam_after)]
        arguments = _sim_arguments(settings, config, vehicles)
        sim = Part("sim", [*arguments, *event_type], restart=False, keep_output=True)
    pipeline = None
    if with_pipeline or with_pipeline is None:
        missing = _missing_for_pipeline(settings)
        if missing is None:
            pipeline = Part("pipeline", ["pipeline", *common])
        elif with_pipeline:
            raise PipelineError(missing)
        else:
            command.progress.print(f"without the pipeline: {missing}", soft_wrap=True)
    machine = _Machine(settings, [*parts, adapter], matcher, pipeline, sim, verbose)
    result = command.run(machine.run(seconds))
    if as_json:
        command.print_json(result)
    else:
        for line in _sentences(result):
            print(line)


def _matcher(settings: Settings, common: list[str]) -> Part:
    """The part that matches what moves; without a gateway if that is taken."""
    arguments = ["matcher", *common]
    if settings.matcher.gateway and _is_taken(settings):
        command.progress.print(
            f"without the gateway: TCP port {settings.gateway.port} is taken;"
            " gateway.port sets another",
            soft_wrap=True,
        )
        arguments.append("--no-gateway")
    return Part("matcher", arguments)


def _is_taken(settings: Settings) -> bool:
    host, port = settings.gateway.host, settings.gateway.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _missing_for_pipeline(settings: Settings) -> str | None:
    """Why the pipeline cannot run here; None if it can."""
    folders = (settings.pipeline.checkpoint, settings.pipeline.history_folder)
    if not settings.bus.uri.startswith("embedded:") and None in folders:
        return "with this bus it must be told pipeline.checkpoint and pipeline.history_folder"
    for package in ("pandas", "pyarrow", "pyspark"):
        if find_spec(package) is None:
            return f"it needs {package}: pip install 'mercury-messaging[pipeline]'"
    try:
        find_java()
    except JavaError as error:
        return str(error)
    return None


def _sim_arguments(settings: Settings, config: Path | None, vehicles: int) -> list[str]:
    host = settings.adapter.host
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    arguments = ["sim", "--json", "--vehicles", str(vehicles), "--seed", str(settings.sim.seed)]
    arguments += ["--adapter", f"udp://{host}:{settings.adapter.port}"]
    if config is not None:
        arguments += ["--config", str(config)]
    # Said even if there is none: it may be that a flag took away what the file says.
    x_m, y_m = settings.sim.antenna
    return [*arguments, "--link", settings.sim.link or "none", f"--antenna={x_m!r},{y_m!r}"]


class _Machine:
    """All parts on one machine, from the first start to the summary."""

    def __init__(
        self,
        settings: Settings,
        parts: list[Part],
        matcher: Part | None,
        pipeline: Part | None,
        sim: Part | None,
        verbose: bool,
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._matcher = matcher
        self._pipeline = pipeline
        self._sim = sim
        self._environment = {} if verbose else {"MERCURY_LOG__LEVEL": "warning"}
        self._seen: dict[str, dict[str, float]] = {}

    async def run(self, seconds: float | None) -> dict[str, Any]:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        bus = command.bus_of(self._settings)
        status = bus.subscribe((topics.STATUS,))
        ledger = LedgerReader(bus, now_us())
        supervisor = Supervisor(self._environment)
        begun = time.monotonic()
        begun_us = now_us()
        watching: list[asyncio.Task[None]] = []
        try:
            await self._start(supervisor, status, stop, seconds)
            if self._has_gateway():
                news = bus.subscribe((topics.STATUS,), start=FromTime(begun_us))
                watching.append(asyncio.create_task(self._await_matcher(news)))
            if self._sim is not None and not stop.is_set():
                await supervisor.start(self._sim)
            if self._pipeline is not None:
                alerts = bus.subscribe(topics.ALERTS)
                watching += [
                    asyncio.create_task(self._await_pipeline(supervisor, status, stop, begun)),
                    asyncio.create_task(self._await_alert(alerts, begun)),
                ]
            await _until(stop, supervisor, seconds)
        finally:
            ran_s = time.monotonic() - begun
            command.progress.print("stopping …")
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await supervisor.stop()
            await asyncio.sleep(0)
        raise_if_failed(supervisor)
        self._seen.update(_latest(status.poll(10_000)))
        result = {
            "seconds": round(ran_s, 1),
            "restarts": {part.name: part.restarts for part in supervisor.parts if part.restarts},
            "parts": self._seen,
            "simulation": _output(self._sim),
            "ledger": ledger.catch_up().summary().as_dict(),
        }
        ledger.close()
        status.close()
        bus.close()
        return result

    async def _start(
        self, supervisor: Supervisor, status: Consumer, stop: asyncio.Event, seconds: float | None
    ) -> None:
        for part in self._parts:
            await supervisor.start(part)
        for late in (self._matcher, self._pipeline):
            if late is not None:
                await supervisor.start(late)
        await _ready(status, supervisor, self._seen, len(self._parts), stop, self._late())
        host, port = self._settings.adapter.host, self._settings.adapter.port
        command.progress.print(
            f"Mercury is up: adapter at udp://{host}:{port}, bus {self._settings.bus.uri}"
            + ("" if seconds else " – Ctrl-C stops it"),
            soft_wrap=True,
        )

    def _late(self) -> frozenset[str]:
        """Parts that nobody waits for: what they are told meanwhile waits for them on the bus."""
        names = (self._settings.matcher.id, self._settings.pipeline.id)
        return frozenset(str(Address.service(name)) for name in names)

    def _has_gateway(self) -> bool:
        matcher = self._settings.matcher
        if self._matcher is None or not matcher.gateway:
            return False
        return "--no-gateway" not in self._matcher.arguments

    async def _await_matcher(self, status: Consumer) -> None:
        """Say where the gateway is, once it is open."""
        name = str(Address.service(self._settings.matcher.id))
        host, port = self._settings.gateway.host, self._settings.gateway.port
        with contextlib.closing(status):
            while name not in _latest(await status.read()):
                pass
        command.progress.print(f"the gateway is open at http://{host}:{port}, see /openapi.json")

    async def _await_pipeline(
        self, supervisor: Supervisor, status: Consumer, stop: asyncio.Event, begun: float
    ) -> None:
        """Say when the pipeline is there; what happens until then waits for it on the bus."""
        pipeline = str(Address.service(self._settings.pipeline.id))
        with waiting("Spark is starting"):
            await _ready(status, supervisor, self._seen, 1, stop, only=pipeline)
        if pipeline in self._seen:
            command.progress.print(f"the pipeline is up after {time.monotonic() - begun:.0f} s")

    async def _await_alert(self, alerts: Consumer, begun: float) -> None:
        """Say when the pipeline has found something for the first time."""
        with contextlib.closing(alerts):
            while True:
                for record in await alerts.read():
                    with contextlib.suppress(PacketError):
                        found = decode(record.value)
                        if found.source == Address.service(self._settings.pipeline.id):
                            command.progress.print(
                                f"the pipeline has found the first {found.topic}"
                                f" after {time.monotonic() - begun:.0f} s",
                                markup=False,
                            )
                            return


async def _ready(
    status: Consumer,
    supervisor: Supervisor,
    seen: dict[str, dict[str, float]],
    expected: int,
    stop: asyncio.Event,
    late: frozenset[str] = frozenset(),
    *,
    only: str | None = None,
) -> None:
    """Wait until so many parts have said that they are there, or a certain one."""

    def there() -> int:
        return len(seen.keys() - late if only is None else seen.keys() & {only})

    deadline = time.monotonic() + _READY_S
    while there() < expected and not stop.is_set():
        raise_if_failed(supervisor)
        if time.monotonic() > deadline:
            raise ConfigurationError(f"not all parts came up within {_READY_S:g} s")
        seen.update(_latest(await status.read(timeout_s=0.1)))


async def _until(stop: asyncio.Event, supervisor: Supervisor, seconds: float | None) -> None:
    supervisor.failed.add_done_callback(lambda _: stop.set())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def _latest(records: list[Any]) -> dict[str, dict[str, float]]:
    found = {}
    for record in records:
        with contextlib.suppress(PacketError):
            values = decode(record.value).values
            if values.get("state") == "starting":
                continue
            found[record.key.decode()] = {
                key: value for key, value in values.items() if isinstance(value, int | float)
            }
    return found


def _output(sim: Part | None) -> Any:
    if sim is None:
        return None
    try:
        return json.loads(b"".join(sim.output).splitlines()[-1])
    except (ValueError, IndexError):
        return None


def _total(group: dict[str, dict[str, float]], key: str) -> int:
    return int(sum(values.get(key, 0) for values in group.values()))


def _notified(ledger: dict[str, float | None]) -> str:
    """The ledger in a sentence."""
    if not ledger["recipients"]:
        return f"Ledger: {ledger['messages']:,} messages, addressed to nobody who was there."
    took = ""
    if ledger["p50_s"] is not None and ledger["p99_s"] is not None:
        took = f" (half within {ledger['p50_s']:.3f} s, 99 % within {ledger['p99_s']:.3f} s)"
    others = ", ".join(
        f"{ledger[state]:,} {word}"
        for state, word in _ENDS.items()
        if ledger[state] or state == "unreachable"
    )
    return (
        f"Ledger: {ledger['messages']:,} messages to {ledger['recipients']:,} recipients: "
        f"{ledger['acknowledged']:,} acknowledged{took}, {others}."
    )


def _sentences(result: dict[str, Any]) -> list[str]:
    parts = result["parts"]
    adapters = {name: values for name, values in parts.items() if name.startswith("adapter")}
    brokers = {name: values for name, values in parts.items() if name.startswith("broker")}
    services = {name: values for name, values in parts.items() if name.startswith("service")}
    matchers = {name: values for name, values in services.items() if "pairs" in values}
    pipelines = {name: values for name, values in services.items() if name not in matchers}
    lines = [
        f"Mercury ran for {result['seconds']:g} s.",
        f"  {_total(adapters, 'sessions_opened'):,} clients connected; "
        f"{_total(adapters, 'reports'):,} reports and {_total(adapters, 'messages'):,} messages "
        f"came in, {_total(adapters, 'packets_sent'):,} packets went out.",
        f"  Alerts raised: {_total(brokers, 'alerts'):,} by brokers, "
        f"{_total(pipelines, 'alerts'):,} by the pipeline; requests answered: "
        f"{_total(brokers, 'echoes') + _total(brokers, 'requests'):,}.",
    ]
    if _total(matchers, "declarations") or _total(matchers, "updates"):
        lines.append(
            f"  Matching: {_total(matchers, 'updates'):,} positions of what moves, "
            f"{_total(matchers, 'events'):,} times somebody came, stayed or went."
        )
    simulation = result["simulation"]
    if simulation is not None:
        lines += [f"  {incident['summary']}" for incident in simulation["incidents"]]
        if simulation["link"] is not None:
            lines.append(f"  {simulation['link']['summary']}")
    lines.append(f"  {_notified(result['ledger'])}")
    dropped: dict[str, float] = {}
    for values in parts.values():
        for key, value in values.items():
            if key.startswith("dropped.") and value:
                reason = key.removeprefix("dropped.")
                dropped[reason] = dropped.get(reason, 0) + value
    text = ", ".join(f"{reason} {count:g}" for reason, count in sorted(dropped.items()))
    lines.append(f"  Dropped: {text or 'nothing'}.")
    for name, count in result["restarts"].items():
        lines.append(f"  {name} crashed and was restarted {count} times.")
    return lines
