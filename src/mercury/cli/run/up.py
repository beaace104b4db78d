"""`mercury up`: all parts on one machine, supervised."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mercury.cli.common import command
from mercury.cli.common.spinner import waiting
from mercury.cli.run import summary
from mercury.cli.run.machine import Machine, running, say
from mercury.cli.run.parts import Parts, adapter_uri, claimed_parts
from mercury.config import Settings
from mercury.model.errors import ConfigurationError
from mercury.service.supervisor import Part


def up(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    port: Annotated[
        int | None,
        typer.Option(help="UDP port of the adapter; the gateway's is then 80 above it"),
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=64, help="Brokers that share the work")] = 1,
    vehicles: Annotated[
        int, typer.Option(min=0, help="Also simulate a city with so many vehicles")
    ] = 0,
    event: Annotated[
        str | None, typer.Option(help="Something to sense in that city, in metres", metavar="X,Y,R")
    ] = None,
    event_after: Annotated[float, typer.Option(min=0.0, help="Seconds until it happens")] = 10.0,
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
    """Run all parts on this machine until Ctrl-C or `mercury down`, or for a time, and sum up."""
    settings = command.settings_for(
        config,
        bus__uri=bus,
        adapter__port=port,
        sim__seed=seed,
        sim__link=link,
        **command.antenna_settings(antenna),
    )
    if event is not None and not vehicles:
        raise ConfigurationError("--event needs --vehicles that sense it")
    if (link is not None or antenna is not None) and not vehicles:
        raise ConfigurationError("--link and --antenna need --vehicles that have a link")
    sim = None
    if vehicles:
        arguments = _sim_arguments(settings, config, vehicles)
        if event is not None:
            arguments += ["--event", event, "--event-after", str(event_after)]
        sim = Part("sim", arguments, restart=False, keep_output=True)
    environment = {} if verbose else {"MERCURY_LOG__LEVEL": "warning"}
    options = {"brokers": brokers, "matcher": with_matcher, "pipeline": with_pipeline}
    with claimed_parts(settings, config, **options) as parts:
        result = command.run(_run(settings, parts, sim, environment, seconds))
    if as_json:
        command.print_json(result)
    else:
        for line in summary.sentences(result):
            print(line)


async def _run(
    settings: Settings,
    parts: Parts,
    sim: Part | None,
    environment: dict[str, str],
    seconds: float | None,
) -> dict[str, Any]:
    begun = time.monotonic()
    host, port = settings.adapter.host, settings.adapter.port
    listens = f"udp://[{host}]:{port}" if ":" in host else f"udp://{host}:{port}"
    async with running(settings, parts, environment) as machine:
        if not machine.stop.is_set():
            say(
                f"Mercury is up: adapter at {listens}, bus {settings.bus.uri}"
                + ("" if seconds else " – Ctrl-C stops it")
            )
            if sim is not None:
                await machine.supervisor.start(sim)
        telling = [
            asyncio.create_task(_tell_of_gateway(machine)),
            asyncio.create_task(_tell_of_pipeline(machine, begun)),
        ]
        await machine.wait(seconds)
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)
        say("stopping …")
    simulation = _output(sim)
    for incident in [] if simulation is None else simulation["incidents"]:
        missed = incident["missed"]
        incident["why_missed"] = await summary.why_missed(settings, incident["alert"], missed)
    return {**machine.last, "simulation": simulation}


async def _tell_of_gateway(machine: Machine) -> None:
    """Say where the gateway is, once it is open."""
    matcher, address = machine.parts.matcher, machine.parts.gateway
    if matcher is not None and address is not None and await machine.ready(matcher):
        say(f"the gateway is open at {address}, see /openapi.json")


async def _tell_of_pipeline(machine: Machine, begun: float) -> None:
    """Say when the pipeline is there; what happens until then waits for it on the bus."""
    pipeline = machine.parts.pipeline
    if pipeline is not None:
        with waiting("Spark is starting"):
            up = await machine.ready(pipeline)
        if up:
            say(f"the pipeline is up after {time.monotonic() - begun:.0f} s")


def _sim_arguments(settings: Settings, config: Path | None, vehicles: int) -> list[str]:
    arguments = ["sim", "--json", "--vehicles", str(vehicles), "--seed", str(settings.sim.seed)]
    arguments += ["--adapter", adapter_uri(settings)]
    if config is not None:
        arguments += ["--config", str(config)]
    # Said even if there is none: it may be that a flag took away what the file says.
    x_m, y_m = settings.sim.antenna
    return [*arguments, "--link", settings.sim.link or "none", f"--antenna={x_m!r},{y_m!r}"]


def _output(sim: Part | None) -> Any:
    if sim is None:
        return None
    try:
        return json.loads(b"".join(sim.output).splitlines()[-1])
    except (ValueError, IndexError):
        return None
