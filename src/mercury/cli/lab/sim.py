"""`mercury sim`: vehicles that move, report and sense, against a running adapter."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, process_time
from typing import Annotated, Any

import numpy as np
import typer

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.config import Settings
from mercury.model.area import Position
from mercury.model.errors import ConfigurationError
from mercury.model.topics import events_topic
from mercury.roads.plane import Plane, PlaneFrame
from mercury.service.stop_signals import on_stop_signal
from mercury.sim.figure import draw
from mercury.sim.fleet import Fleet
from mercury.sim.incident import Incident
from mercury.sim.paper import PAPER, run_experiment, seeded

app = typer.Typer(
    help="Simulate vehicles.", invoke_without_command=True, pretty_exceptions_enable=False
)

_WATCH_S = 3.0  # after an event: then it is said what became of it
_SHOW_EVERY_S = 1.0

Circle = tuple[float, float, float]  # x, y, radius in metres of the plane


@app.callback()
def sim(
    context: typer.Context,
    config: command.ConfigOption = None,
    vehicles: Annotated[int | None, option("Number of vehicles; default 100")] = None,
    adapter: Annotated[str | None, option("Default udp://127.0.0.1:7400", "URI")] = None,
    seconds: command.ForOption = None,
    seed: Annotated[int | None, option("Seed of the traffic; default 1")] = None,
    report_interval: Annotated[
        float | None, option("Seconds between reports, or the adapter's if less; default 1")
    ] = None,
    event: Annotated[
        list[str] | None, option("An event to sense, in metres of the plane; repeatable", "X,Y,R")
    ] = None,
    event_after: Annotated[
        float, option("Seconds until the first event, and between events", min=0.0)
    ] = 2.0,
    event_kind: Annotated[str, option("Kind of the events")] = "emergency",
    jam: Annotated[
        str | None, option("Where vehicles stop, without an event; default none", "X,Y,R")
    ] = None,
    jam_after: Annotated[float, option("Seconds until the jam", min=0.0)] = 2.0,
    link: command.LinkOption = None,
    antenna: command.AntennaOption = None,
    json: command.JsonOption = False,
) -> None:
    """Run simulated vehicles: each drives, reports its position and senses events."""
    if context.invoked_subcommand is not None:
        return
    settings = command.settings_for(
        config,
        sim__vehicles=vehicles,
        sim__seed=seed,
        sim__report_interval_s=report_interval,
        sim__link=link,
        **command.antenna_settings(antenna),
        client__adapter=adapter,
    )
    events = [circle_of(text, settings) for text in event or []]
    events_topic(event_kind)  # an impossible name is said now, not at the event
    if seconds is not None and len(events) * event_after > seconds:
        raise ConfigurationError(
            f"the last event comes after {len(events) * event_after:g} s, but --for ends the run"
            f" after {seconds:g} s"
        )
    stand = None if jam is None else (circle_of(jam, settings, "--jam"), jam_after)
    run = _Run(settings, events, event_after, event_kind, stand, seconds)
    command.run(run.run())
    if json:
        command.print_json(run.to_json())
    else:
        print(run.summary(), flush=True)


@app.command()
def figure(
    out: Annotated[Path, option("Picture to write")] = Path("figure.png"),
    seed: Annotated[
        int | None, option("Seed of the vehicles' positions; default the paper's", min=0)
    ] = None,
    json: command.JsonOption = False,
) -> None:
    """Repeat the area-of-interest experiment of the Mercury paper (§7.2) and draw it."""
    result = command.run(run_experiment(PAPER if seed is None else seeded(seed)))
    draw(result, out)
    if json:
        command.print_json({"figure": str(out), **result.to_json()})
    else:
        print(f"{result.sentences()}\nThe picture is in {out}.", flush=True)
    if not result.as_in_paper:
        command.fail("not exactly those inside the area were notified")


def fleet_of(
    settings: Settings, adapter: str, on_connected: Callable[[int], None] | None = None
) -> Fleet:
    sim = settings.sim
    rng = np.random.default_rng(sim.seed)
    return Fleet(
        Plane.scatter(sim.vehicles, sim.width_m, sim.height_m, rng),
        PlaneFrame(Position(sim.origin_lat, sim.origin_lon)),
        adapter,
        session=replace(command.session_of(settings), report_interval_s=sim.report_interval_s),
        mediator=settings.mediator,
        seed=sim.seed,
        on_connected=on_connected,
        link=sim.link,
        antenna=sim.antenna,
    )


@dataclass(slots=True)
class _Run:
    """One run of a fleet, from the first session to the summary."""

    settings: Settings
    events: list[Circle]
    event_after_s: float
    event_kind: str
    jam: tuple[Circle, float] | None
    seconds: float | None
    fleet: Fleet = field(init=False)
    jamming: asyncio.Future[Incident] | None = None
    shown: float = 0.0
    connected: int = 0  # when the run ended
    lasted_s: float = 0.0  # since all were connected
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
        self.fleet = fleet_of(self.settings, self.settings.client.adapter, self._show_connected)

    async def run(self) -> None:
        """Drive until the time is over or a signal comes."""
        work = asyncio.create_task(self._drive())
        on_stop_signal(work.cancel)
        await asyncio.wait([work])
        await self.fleet.stop()
        if not work.cancelled():
            work.result()

    async def _drive(self) -> None:
        await self.fleet.start()
        if self.fleet.connected < len(self.fleet.clients):  # over lossy links
            self._show_connected(self.fleet.connected, last=True)
        begun, cpu_begun = monotonic(), process_time()
        try:
            await self._let_happen(begun)
        finally:
            self.lasted_s = monotonic() - begun
            self.cpu_s = process_time() - cpu_begun
            self.connected = self.fleet.connected

    async def _let_happen(self, begun: float) -> None:
        if self.jam is not None:
            circle, after_s = self.jam
            asyncio.get_running_loop().call_later(after_s, self._begin_jam, circle)
        for event in self.events:
            await asyncio.sleep(self.event_after_s)
            incident = await self.fleet.simulate_event(*event, kind=self.event_kind)
            asyncio.get_running_loop().call_later(_WATCH_S, _show, incident)
        if self.seconds is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(begun + self.seconds - monotonic())

    def _begin_jam(self, circle: Circle) -> None:
        command.progress.print(f"traffic comes to a stand at {circle[0]:g}, {circle[1]:g}")
        self.jamming = asyncio.ensure_future(self.fleet.simulate_jam(*circle))

    def _show_connected(self, count: int, *, last: bool = False) -> None:
        total = len(self.fleet.clients)
        if last or count == total or monotonic() - self.shown > _SHOW_EVERY_S:
            self.shown = monotonic()
            rest = ", the others go on trying" if last else ""
            command.progress.print(f"{count} of {total} vehicles connected{rest}")

    def to_json(self) -> dict[str, Any]:
        fleet = self.fleet
        return {
            "vehicles": len(fleet.clients),
            "connected": self.connected,
            "seed": self.settings.sim.seed,
            "report_interval_s": self.settings.sim.report_interval_s,
            "seconds": round(self.lasted_s, 3),
            "cpu_share": round(self.cpu_s / self.lasted_s, 4) if self.lasted_s else None,
            "sessions_lost": fleet.sessions_lost,
            "unrelated_alerts": fleet.unrelated_alerts,
            "dropped": dict(fleet.dropped()),
            "link": self._link_to_json(),
            "incidents": [incident.to_json() for incident in fleet.incidents],
        }

    def summary(self) -> str:
        if not self.lasted_s:
            return "Stopped before all vehicles were connected."
        fleet = self.fleet
        first = (
            f"{len(fleet.clients)} vehicles drove for {self.lasted_s:.1f} s on"
            f" {100 * self.cpu_s / self.lasted_s:.0f} % of one core;"
            f" {fleet.sessions_lost or 'no'} sessions were lost."
        )
        lines = [first, *(incident.sentences() for incident in fleet.incidents)]
        if self.settings.sim.link is not None:
            lines.append(self._link_sentence())
        return "\n".join(lines)

    def _link_to_json(self) -> dict[str, Any] | None:
        if self.settings.sim.link is None:
            return None
        by_direction = self.fleet.link_statistics()
        return {
            "spec": self.settings.sim.link,
            "antenna_m": list(self.fleet.antenna),
            **{direction: found.to_json() for direction, found in by_direction.items()},
            "summary": self._link_sentence(),
        }

    def _link_sentence(self) -> str:
        found = self.fleet.link_statistics()
        return f"The links lost {found['up'].phrase()} up and {found['down'].phrase()} down."


def _show(incident: Incident) -> None:
    text = incident.sentences().replace("No alert came.", "No alert yet.")
    command.progress.print(text)


def circle_of(text: str, settings: Settings, option: str = "--event") -> Circle:
    x_m, y_m, radius_m = reading.numbers(text, 3, f"{option} {text} is not X,Y,R in metres")
    sim = settings.sim
    if not (0.0 <= x_m <= sim.width_m and 0.0 <= y_m <= sim.height_m):
        raise ConfigurationError(
            f"{option} {text} is not on the plane of {sim.width_m:g} × {sim.height_m:g} m"
        )
    if not 0.0 < radius_m < math.inf:
        raise ConfigurationError(f"{option} {text} has no radius")
    return x_m, y_m, radius_m
