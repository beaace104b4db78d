"""The functional evaluation of Mercury §7.2: ten vehicles, an event, an area of interest.

Everybody inside the broker's area when the alert arrives gets it, whether or not they sensed the
event, and nobody outside. Adapter, broker and clients are the real ones and speak over UDP; only
the time between event and alert is made up, so that the vehicles move on as they did in the paper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mercury.adapter import Adapter
from mercury.broker import Broker
from mercury.bus import Bus, open_bus
from mercury.config.settings import AdapterSettings, BrokerSettings
from mercury.model.area import Circle, Position
from mercury.model.errors import MercuryError
from mercury.roads.plane import Plane, PlaneFrame
from mercury.service.clock import now
from mercury.session import SessionSettings
from mercury.sim.fleet import Fleet
from mercury.sim.incident import Incident

_WAIT_S = 10.0
# How long to wait for a notification that must not come.
_LINGER_S = 0.1
# An emergency's witnesses share a bus key when they round to the same hundredth of a degree. From
# here all that sense the event do, so the first of them is the first for the broker, too.
_ORIGIN = Position(40.7610, -111.8940)


class Placement(NamedTuple):
    """One vehicle, in units of the plane."""

    x: float
    y: float
    heading_deg: float
    speed_mps: float


# Mercury §7.2, figures 3 and 4: of the four that sense the event, the one at (6, 2) drives away;
# those at (3, 5) and (8, 6) drive in; four stay out. The speeds average to 17.5 m/s.
PAPER = (
    Placement(5.2, 1.8, 270.0, 5.0),
    Placement(6.0, 2.0, 90.0, 30.0),
    Placement(3.8, 1.2, 315.0, 12.0),
    Placement(4.6, 3.5, 90.0, 15.0),
    Placement(3.0, 5.0, 160.0, 20.0),
    Placement(8.0, 6.0, 200.0, 22.0),
    Placement(1.0, 8.0, 90.0, 25.0),
    Placement(9.0, 9.0, 270.0, 20.0),
    Placement(1.0, 3.5, 0.0, 18.0),
    Placement(5.0, 8.5, 90.0, 8.0),
)


# Places and radii in units of the plane.
UNIT_M = 100.0
SIZE = 10.0
EVENT = 5.0, 2.0, 2.0  # x, y, radius
DELAY_S = 10.0  # simulated time between the event and the broker's decision
_HORIZON_S = 20.0  # the broker's: at 17.5 m/s it makes an area of 3.5 units


def seeded(seed: int) -> tuple[Placement, ...]:
    """Ten random vehicles, four of them where they sense the event."""
    rng = np.random.default_rng(seed)
    x, y, radius = EVENT
    placements: list[Placement] = []
    while len(placements) < 10:
        at_x, at_y = rng.uniform(0.0, SIZE, 2).tolist()
        senses = bool(np.hypot(at_x - x, at_y - y) <= radius)
        if senses == (len(placements) < 4):
            heading, speed = rng.uniform(0.0, 360.0), rng.uniform(5.0, 30.0)
            placements.append(Placement(at_x, at_y, float(heading), float(speed)))
    return tuple(placements)


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """The results: all that the figures need."""

    incident: Incident
    area: tuple[float, float, float]  # the broker's: x, y, radius in units

    @property
    def as_in_paper(self) -> bool:
        """Whether exactly those inside the broker's area were notified."""
        incident = self.incident
        return sorted(incident.notified_ms) == incident.inside and not incident.notified_outside

    def sentences(self) -> str:
        incident = self.incident
        event_x, event_y, event_radius = EVENT
        x, y, radius = self.area
        inside, notified = len(incident.inside), len(incident.notified_inside)
        witnesses = len(set(incident.inside) & set(incident.sensed))
        outside = len(incident.notified_outside) or "nobody"
        return (
            f"{len(incident.sensed)} of {len(incident.identities)} vehicles sensed the event at"
            f" ({event_x:g}, {event_y:g}) within {event_radius:g} units. When the alert arrived,"
            f" {inside} were in the broker's area, {radius:.3g} units around ({x:.3g}, {y:.3g});"
            f" {witnesses} of these had sensed the event. {notified} of {inside} inside were told,"
            f" and {outside} outside."
        )

    def to_json(self) -> dict[str, Any]:
        x, y, radius = self.area
        return {
            "as_in_paper": self.as_in_paper,
            "unit_m": UNIT_M,
            "area_units": [round(x, 3), round(y, 3), round(radius, 3)],
            **self.incident.to_json(),
        }


async def run_experiment(
    placements: tuple[Placement, ...] = PAPER, bus_uri: str = "memory:"
) -> ExperimentResult:
    """Run the experiment, on a bus of its own."""
    with closing(open_bus(bus_uri)) as bus:
        return await _run(placements, bus)


async def _run(placements: tuple[Placement, ...], bus: Bus) -> ExperimentResult:
    x, y, radius = (value * UNIT_M for value in EVENT)
    # Long intervals: the vehicles report when the plane moves, not in between.
    session = SessionSettings(report_interval_s=60.0)
    adapter = Adapter(bus, AdapterSettings(port=0, traffic_radius_m=100 * UNIT_M), session)
    broker = Broker(
        bus,
        BrokerSettings(
            emergency_radius_m=radius,
            emergency_horizon_s=_HORIZON_S,
            merge_distance_m=2 * radius,  # all who sense it sense the same event
        ),
    )
    frame = PlaneFrame(_ORIGIN)
    async with AsyncExitStack() as running:
        await adapter.start()
        running.push_async_callback(adapter.stop)
        uri = f"udp://127.0.0.1:{adapter.port}"
        fleet = Fleet(_plane(placements), frame, uri, session=session, tick_s=None)
        await fleet.start()
        running.push_async_callback(fleet.stop)
        incident = await fleet.simulate_event(x, y, radius)
        await _until(lambda: adapter.counters["messages"] >= len(incident.sensed))
        before = adapter.counters["reports"]
        await fleet.advance(DELAY_S, report=True)
        await _until(lambda: adapter.counters["reports"] >= before + len(fleet.clients))
        # The events are on the bus; only now does the broker start.
        await broker.start()
        running.push_async_callback(broker.stop)
        await _until(lambda: incident.area is not None and not incident.missed)
        await asyncio.sleep(_LINGER_S)
    return ExperimentResult(incident, _in_units(incident, frame))


def _plane(placements: tuple[Placement, ...]) -> Plane:
    x, y, heading_deg, speed_mps = np.array(placements).T
    return Plane(
        SIZE * UNIT_M,
        SIZE * UNIT_M,
        x_m=x * UNIT_M,
        y_m=y * UNIT_M,
        heading_deg=heading_deg,
        speed_mps=speed_mps,
        rng=np.random.default_rng(0),  # no vehicle turns, so nothing is drawn
        turn_deg=0.0,
        surge_mps=0.0,
    )


def _in_units(incident: Incident, frame: PlaneFrame) -> tuple[float, float, float]:
    assert incident.area is not None
    circle = incident.area.shape
    assert isinstance(circle, Circle)
    x_m, y_m = frame.to_plane(circle.center.lat, circle.center.lon)
    return float(x_m) / UNIT_M, float(y_m) / UNIT_M, circle.radius_m / UNIT_M


async def _until(done: Callable[[], bool]) -> None:
    deadline = now() + _WAIT_S
    while not done():
        if now() > deadline:
            raise MercuryError(f"the experiment did not get on within {_WAIT_S:g} s")
        await asyncio.sleep(0.002)
