"""`mercury demo`: a city for a minute, with an emergency, a collision and a jam in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from mercury.cli.common import command
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.cli.lab.sim import fleet_of
from mercury.cli.run.machine import Machine, Parts, adapter_uri, claimed_parts, running
from mercury.cli.run.summary import ledger_sentence, why_missed
from mercury.config import Settings
from mercury.model.message import EventKind
from mercury.roads.plane import Plane
from mercury.sim.fleet import Fleet
from mercury.sim.incident import Incident

# The city has neither roads nor red lights: jams can be found within seconds, not minutes.
_QUICK_JAMS = {
    "cell_m": 600.0,
    "window_s": 5.0,
    "learn_s": 10.0,
    "on_after_s": 10.0,
    "min_vehicles": 3,
    "slow_share": 0.4,
    "validity_s": 120.0,
}
# Shares of the city's width and height, so that the three keep apart.
_EMERGENCY, _COLLISION, _JAM = (0.5, 0.5), (0.8, 0.2), (0.25, 0.75)
_WITNESSES = 4
_LOOKED_AT = 200  # vehicles
_JAM_RADIUS_M = 600.0
_FOUND_S = {EventKind.EMERGENCY: 10.0, EventKind.COLLISION: 30.0, EventKind.CONGESTION: 90.0}
_ALL_NOTIFIED_S = 1.0  # after the first
_LOOK_EVERY_S = 0.02


def demo(
    config: command.ConfigOption = None,
    bus: Annotated[
        str | None, option("embedded:PATH or kafka://HOST:PORT; default in a new folder", "URI")
    ] = None,
    port: Annotated[int | None, command.port("UDP port of the adapter; default 7400")] = None,
    vehicles: Annotated[int, option("Number of vehicles", min=800)] = 1500,
    seed: Annotated[int | None, option("Seed of the simulation; default 1", min=0)] = None,
    verbose: Annotated[bool, option("Print the parts' logs", names="--verbose -v")] = False,
) -> None:
    """Run all parts in a simulated city for about a minute and print what happens."""
    settings = command.settings_for(
        config,
        bus__uri=bus or f"embedded:{tempfile.mkdtemp(prefix='mercury-demo-')}/mercury.db",
        adapter__port=port,
        log__level=None if verbose else "warning",
        sim__vehicles=vehicles,
        sim__seed=seed,
    )
    environment = {
        f"MERCURY_DETECTION__CONGESTION__{name.upper()}": str(value)
        for name, value in _QUICK_JAMS.items()
    }
    if not verbose:
        environment["MERCURY_LOG__LEVEL"] = "warning"
    with claimed_parts(settings, config) as parts:
        story = command.run(_run(settings, parts, environment))
    for line in command.run(_sum_up(settings, story)):
        command.show(line)
    for line in _try_next(settings, story):
        print(line)  # whole, to be copied
    if story.not_found:
        sys.exit(1)


@dataclass(slots=True)
class _Story:
    begun: float = field(default_factory=time.monotonic)
    incidents: list[Incident] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    ledger: dict[str, Any] = field(default_factory=dict)
    lasted_s: float = 0.0


async def _run(settings: Settings, parts: Parts, environment: dict[str, str]) -> _Story:
    story = _Story()
    fleet = fleet_of(settings, adapter_uri(settings))
    command.show(f"Starting {', '.join(part.name for part in parts.all())} …")
    async with running(settings, parts, environment) as machine:
        telling = asyncio.create_task(_tell(story, machine, fleet))
        stopping = asyncio.create_task(machine.stop.wait())
        try:
            await asyncio.wait([telling, stopping], return_when=asyncio.FIRST_COMPLETED)
            # As it is now: at the end the vehicles leave, and what waits for them is given up.
            story.ledger = machine.result()["ledger"]
            story.lasted_s = time.monotonic() - story.begun
        finally:
            for task in (telling, stopping):
                task.cancel()
            (failure, _) = await asyncio.gather(telling, stopping, return_exceptions=True)
            with waiting("stopping"):
                await fleet.stop()
                await machine.supervisor.stop()
        if isinstance(failure, Exception):
            raise failure
    return story


async def _tell(story: _Story, machine: Machine, fleet: Fleet) -> None:
    """Run the three incidents and print what happens."""
    plane, pipeline = fleet.plane, machine.parts.pipeline
    if machine.stop.is_set():
        return
    await fleet.start()
    command.show(
        f"Mercury is up, and {len(fleet.clients):,} vehicles drive in a city of"
        f" {plane.width_m / 1e3:g} × {plane.height_m / 1e3:g} km."
        f"{'' if pipeline is None else ' Spark is starting meanwhile.'}"
    )
    command.show("")
    emergency = await _witnessed(fleet, EventKind.EMERGENCY, *_at(plane, _EMERGENCY))
    story.incidents.append(emergency)
    if await _found(story, emergency):
        first_ms = min(emergency.notified_ms.values())
        _say_all(
            f"The broker judged an emergency: the first vehicle knew after {first_ms:.1f} ms.",
            emergency,
        )
    if pipeline is None:
        command.show("Spark, which is missing here, would now find a collision and a jam.")
        return
    with waiting("Spark is starting"):
        if not await machine.ready(pipeline):
            return
    begun = time.monotonic()
    command.show(f"Spark is up after {begun - story.begun:.0f} s.")
    collision = await _witnessed(fleet, EventKind.COLLISION, *_crowded(plane, _COLLISION))
    jam = await fleet.simulate_jam(*_at(plane, _JAM), _JAM_RADIUS_M)
    story.incidents += [collision, jam]
    command.show(
        f"  A collision: {len(collision.sensed)} vehicles sense it."
        f" A jam: traffic within {_JAM_RADIUS_M:g} m comes nearly to a stand, nobody reports it."
    )
    command.show("")

    async def tell_of(incident: Incident, name: str) -> None:
        if await _found(story, incident):
            took_s = time.monotonic() - begun - _ALL_NOTIFIED_S
            when = "it happened" if incident is collision else "it began"
            _say_all(f"Spark found the {name} {took_s:.1f} s after {when}.", incident)
        sought.remove(name)

    sought = ["collision", "jam"]
    with waiting("Spark is looking", lambda: " and ".join(sought)):
        await asyncio.gather(tell_of(collision, "collision"), tell_of(jam, "jam"))


async def _witnessed(fleet: Fleet, kind: str, x_m: float, y_m: float) -> Incident:
    """Simulate an event that a few vehicles sense."""
    return await fleet.simulate_event(x_m, y_m, _reach_m(fleet.plane, x_m, y_m), kind)


def _reach_m(plane: Plane, x_m: float, y_m: float) -> float:
    """How far the farthest witness is from a place."""
    distances_m = np.hypot(plane.x_m - x_m, plane.y_m - y_m)
    return float(np.partition(distances_m, _WITNESSES - 1)[_WITNESSES - 1])


def _at(plane: Plane, share: tuple[float, float]) -> tuple[float, float]:
    return share[0] * plane.width_m, share[1] * plane.height_m


def _crowded(plane: Plane, share: tuple[float, float]) -> tuple[float, float]:
    """Near there, where witnesses are closest together, so that they report one collision."""
    near = plane.inside_circle(*_at(plane, share), plane.width_m / 4)[:_LOOKED_AT]
    places = [(round(plane.x_m[vehicle]), round(plane.y_m[vehicle])) for vehicle in near]
    return min(places, key=lambda place: _reach_m(plane, *place), default=_at(plane, share))


async def _found(story: _Story, incident: Incident) -> bool:
    """Wait until vehicles are notified of an incident; whether they were."""
    deadline = time.monotonic() + _FOUND_S[EventKind(incident.kind)]
    while incident.area is None:
        if time.monotonic() > deadline:
            story.not_found.append(incident.kind)
            command.show(incident.sentences())
            return False
        await asyncio.sleep(_LOOK_EVERY_S)
    await asyncio.sleep(_ALL_NOTIFIED_S)
    return True


async def _sum_up(settings: Settings, story: _Story) -> list[str]:
    if not story.incidents:
        return []
    lines = [f"It took {story.lasted_s:.0f} s. {ledger_sentence(story.ledger)}"]
    for incident in story.incidents:
        missed = [incident.identities[vehicle] for vehicle in incident.missed]
        lines += [
            f"  {incident.kind}: {sentence}"
            for sentence in await why_missed(settings, incident.alert, missed)
        ]
    return lines


def _try_next(settings: Settings, story: _Story) -> list[str]:
    """The commands to try next, as they work from here."""
    uri = settings.bus.uri
    commands = []
    for incident in story.incidents[:1]:
        if incident.alert is not None:
            commands.append((f"why {incident.alert} --bus {uri}", "what became of the first alert"))
        vehicle = incident.identities[incident.sensed[0]]
        history = settings.pipeline.history_folder or Path(f"{uri.partition(':')[2]}-history")
        if history.is_dir():
            commands.append((f"history where {vehicle} --folder {history}", "where a vehicle was"))
    commands.append(("up", "Mercury for your own vehicles"))
    lines = [(f"  # {what}", f"  {_program()} {command}") for command, what in commands]
    return ["", "Try next:", *chain(*lines)]


def _program() -> str:
    """How this program was called."""
    called = sys.argv[0]
    if os.path.basename(called) != "mercury":
        return f"{sys.executable} -m mercury"
    found = shutil.which("mercury")
    return "mercury" if found and os.path.realpath(found) == os.path.realpath(called) else called


def _say_all(headline: str, incident: Incident) -> None:
    for line in (headline, *(f"  {sentence}" for sentence in incident.lines()), ""):
        command.show(line)
