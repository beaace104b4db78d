"""`mercury up` and `mercury down`: all parts on one machine, supervised."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any

from mercury.cli.common import command
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.cli.run import summary
from mercury.cli.run.machine import Machine, Parts, adapter_uri, claimed_parts, running, say
from mercury.config import Settings
from mercury.model.errors import ConfigurationError
from mercury.service.claim import holder_of
from mercury.service.supervisor import Part

_STOP_S = 60.0  # each part may take a while to finish
_LOOK_EVERY_S = 0.1


def up(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    port: Annotated[
        int | None, command.port("UDP port of the adapter, the gateway's is 80 above; default 7400")
    ] = None,
    brokers: Annotated[int, option("Number of brokers", min=1, max=64)] = 1,
    vehicles: Annotated[int, option("Number of vehicles to simulate", min=0)] = 0,
    event: Annotated[
        str | None, option("Emergency the vehicles sense, in metres; default none", "X,Y,R")
    ] = None,
    event_after: Annotated[float, option("Seconds until that emergency", min=0.0)] = 10.0,
    link: command.LinkOption = None,
    antenna: command.AntennaOption = None,
    with_pipeline: Annotated[
        bool | None,
        option("Run the Spark jobs; default if installed", names="--pipeline/--no-pipeline"),
    ] = None,
    with_matcher: Annotated[
        bool, option("Run a matcher, with the gateway", names="--matcher/--no-matcher")
    ] = True,
    seed: Annotated[int | None, option("Seed of the simulation; default 1", min=0)] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
    verbose: Annotated[bool, option("Print the parts' logs", names="--verbose -v")] = False,
) -> None:
    """Run all parts on this machine until Ctrl-C or `mercury down`, then print a summary."""
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
            from mercury.cli.lab.sim import circle_of

            circle_of(event, settings)  # raises before anything starts
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
            command.show(line)
    if "problem" in result:
        command.fail(f"what the parts did cannot be read: {result['problem']}")


def down(config: command.ConfigOption = None, bus: command.BusOption = None) -> None:
    """Stop the `mercury up` of a bus and all its parts; exit code 1 if none runs."""
    uri = command.settings_for(config, bus__uri=bus).bus.uri
    holder = holder_of(uri)
    if holder is None:
        command.fail(f"no mercury up runs on {uri} here; --bus names another bus")
    parts = ", ".join(holder.parts) or "no parts yet"
    how = "ended"
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(holder.process, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    with waiting(f"ending process {holder.process}"):
        while (one := holder_of(uri)) is not None and one.process == holder.process:
            if time.monotonic() > deadline and how == "ended":
                how = "killed"
                os.kill(holder.process, signal.SIGKILL)  # its parts notice, and end
            time.sleep(_LOOK_EVERY_S)
    command.show(f"{how} mercury up, process {holder.process}, on {uri} ({parts})")


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
        await command.wait(machine.stop, seconds)
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)
        say("stopping …")
    simulation = _output(sim)
    unread = simulation is None or "problem" in machine.last
    for incident in [] if unread else simulation["incidents"]:
        missed = incident["missed"]
        incident["why_missed"] = await summary.why_missed(settings, incident["alert"], missed)
    return {**machine.last, "simulation": simulation}


async def _tell_of_gateway(machine: Machine) -> None:
    matcher, address = machine.parts.matcher, machine.parts.gateway
    if matcher is not None and address is not None and await machine.ready(matcher):
        say(f"the gateway is open at {address}, see /openapi.json")


async def _tell_of_pipeline(machine: Machine, begun: float) -> None:
    """Print when the pipeline is up; until then its records wait on the bus."""
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
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(b"".join(sim.output).splitlines()[-1]) if sim is not None else None
    return None
