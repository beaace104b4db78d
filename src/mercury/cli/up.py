"""`mercury up`: all parts on one machine, supervised."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mercury.bus import Consumer
from mercury.cli import frame
from mercury.config import Settings
from mercury.model import topics
from mercury.model.errors import ConfigurationError, PacketError
from mercury.service.supervisor import Part, Supervisor, raise_if_failed
from mercury.wire import decode

_READY_S = 30.0


def up(
    config: frame.ConfigOption = None,
    bus: frame.BusOption = None,
    port: Annotated[int | None, typer.Option(help="UDP port of the adapter")] = None,
    brokers: Annotated[int, typer.Option(min=1, max=64, help="Brokers that share the work")] = 1,
    vehicles: Annotated[
        int, typer.Option(min=0, help="Also simulate a city with so many vehicles")
    ] = 0,
    event: Annotated[
        str | None, typer.Option(help="An emergency in that city, in metres", metavar="X,Y,R")
    ] = None,
    event_after: Annotated[float, typer.Option(min=0.0, help="Seconds until it happens")] = 10.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Same seed, same city")] = None,
    seconds: frame.ForOption = None,
    as_json: frame.JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the parts' logs")] = False,
) -> None:
    """Run all parts on this machine until Ctrl-C, or for a time, and sum up."""
    settings = frame.settings_for(config, bus__uri=bus, adapter__port=port, sim__seed=seed)
    if settings.bus.uri.startswith("memory:"):
        raise ConfigurationError(
            "mercury up runs several processes: use a sqlite: bus or a kafka: bus"
        )
    if settings.adapter.port == 0:
        raise ConfigurationError("mercury up needs a fixed adapter port, not 0")
    if event is not None and not vehicles:
        raise ConfigurationError("--event needs --vehicles that sense it")
    if settings.bus.uri.startswith("sqlite:"):
        Path(settings.bus.uri.removeprefix("sqlite:")).parent.mkdir(parents=True, exist_ok=True)
    common = ["--bus", settings.bus.uri]
    if config is not None:
        common += ["--config", str(config)]
    adapter = Part("adapter", ["adapter", *common, "--port", str(settings.adapter.port)])
    parts = [
        Part(f"broker-{number}", ["broker", *common, "--id", f"broker-{number}"])
        for number in range(1, brokers + 1)
    ]
    sim = None
    if vehicles:
        sim = Part("sim", _sim_arguments(settings, config, vehicles, event, event_after),
                   restart=False, keep_output=True)  # fmt: skip
    result = frame.run(_run(settings, [*parts, adapter], sim, seconds, verbose))
    if as_json:
        frame.print_json(result)
    else:
        for line in _sentences(result):
            print(line)


def _sim_arguments(
    settings: Settings, config: Path | None, vehicles: int, event: str | None, event_after: float
) -> list[str]:
    host = settings.adapter.host
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    arguments = ["sim", "--json", "--vehicles", str(vehicles), "--seed", str(settings.sim.seed)]
    arguments += ["--adapter", f"udp://{host}:{settings.adapter.port}"]
    if config is not None:
        arguments += ["--config", str(config)]
    if event is not None:
        arguments += ["--event", event, "--event-after", str(event_after)]
    return arguments


async def _run(
    settings: Settings, parts: list[Part], sim: Part | None, seconds: float | None, verbose: bool
) -> dict[str, Any]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    bus = frame.bus_of(settings)
    status = bus.subscribe((topics.STATUS,))
    environment = {} if verbose else {"MERCURY_LOG__LEVEL": "warning"}
    supervisor = Supervisor(environment)
    begun = time.monotonic()
    try:
        for part in parts:
            await supervisor.start(part)
        seen = await _ready(status, supervisor, len(parts), stop)
        host, port = settings.adapter.host, settings.adapter.port
        frame.progress.print(
            f"Mercury is up: adapter at udp://{host}:{port}, bus {settings.bus.uri}"
            + ("" if seconds else " – Ctrl-C stops it"),
            soft_wrap=True,
        )
        if sim is not None and not stop.is_set():
            await supervisor.start(sim)
        await _until(stop, supervisor, seconds)
    finally:
        ran_s = time.monotonic() - begun
        frame.progress.print("stopping …")
        await supervisor.stop()
        await asyncio.sleep(0)
    raise_if_failed(supervisor)
    seen.update(_latest(status.poll(10_000)))
    result = {
        "seconds": round(ran_s, 1),
        "restarts": {part.name: part.restarts for part in supervisor.parts if part.restarts},
        "parts": seen,
        "simulation": _output(sim),
    }
    status.close()
    bus.close()
    return result


async def _ready(
    status: Consumer, supervisor: Supervisor, expected: int, stop: asyncio.Event
) -> dict[str, dict[str, float]]:
    seen: dict[str, dict[str, float]] = {}
    deadline = time.monotonic() + _READY_S
    while len(seen) < expected and not stop.is_set():
        raise_if_failed(supervisor)
        if time.monotonic() > deadline:
            raise ConfigurationError(f"not all parts came up within {_READY_S:g} s")
        seen.update(_latest(await status.read(timeout_s=0.1)))
    return seen


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


def _sentences(result: dict[str, Any]) -> list[str]:
    parts = result["parts"]
    adapters = {name: values for name, values in parts.items() if name.startswith("adapter")}
    brokers = {name: values for name, values in parts.items() if name.startswith("broker")}
    lines = [
        f"Mercury ran for {result['seconds']:g} s.",
        f"  {_total(adapters, 'sessions_opened'):,} clients connected; "
        f"{_total(adapters, 'reports'):,} reports and {_total(adapters, 'messages'):,} messages "
        f"came in, {_total(adapters, 'packets_sent'):,} packets went out.",
        f"  Alerts raised: {_total(brokers, 'alerts'):,}; requests answered: "
        f"{_total(brokers, 'echoes') + _total(brokers, 'requests'):,}.",
    ]
    simulation = result["simulation"]
    if simulation is not None:
        lines += [f"  {incident['summary']}" for incident in simulation["incidents"]]
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
