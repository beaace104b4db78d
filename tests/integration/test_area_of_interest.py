"""Who is told: exactly those inside an area, over real sockets (Mercury §7.2)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from live import until

from mercury.adapter import Adapter
from mercury.broker import Broker
from mercury.bus import open_bus
from mercury.client import Client, ServiceEndpoint, connect
from mercury.config.settings import AdapterSettings, BrokerSettings
from mercury.model.area import Area, Circle, HeadingSector, Position
from mercury.model.message import Message
from mercury.session import SessionSettings
from mercury.sim.paper import EVENT, PAPER, run_experiment, seeded

CENTER = Position(40.76, -111.89)
INSIDE = (40.761, -111.89)  # 111 m away
OUTSIDE = (40.77, -111.89)  # 1.1 km away
AREA = Area(Circle(CENTER, 500.0))


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(work, 30.0))


@dataclass
class World:
    adapter: Adapter
    office: ServiceEndpoint

    def vehicle(
        self, name: str, place: tuple[float, float], heading_deg: float | None = None
    ) -> Client:
        uri = f"udp://127.0.0.1:{self.adapter.port}"
        # Reports are sent by the test alone.
        settings = SessionSettings(report_interval_s=30.0)
        return connect(
            uri, identity=name, position=place, heading_deg=heading_deg, settings=settings
        )

    async def drive(self, vehicle: Client, place: tuple[float, float]) -> None:
        """Move, and return when the adapter has had time to react to it."""
        reports = self.adapter.counters["reports"]
        vehicle.move(*place, report=True)
        await until(lambda: self.adapter.counters["reports"] > reports)
        await self.looked(vehicle)

    async def looked(self, vehicle: Client) -> None:
        """Wait until the adapter has looked for newcomers, and what it sent them has arrived."""
        await until(lambda: not self.adapter.sessions.table.moved.any())
        await vehicle.echo()


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    bus = open_bus(f"embedded:{tmp_path / 'bus.db'}")
    adapter = Adapter(bus, AdapterSettings(port=0), SessionSettings(report_interval_s=30.0))
    broker = Broker(bus, BrokerSettings())
    await adapter.start()
    await broker.start()
    try:
        yield World(adapter, ServiceEndpoint(bus, "office"))
    finally:
        await broker.stop()
        await adapter.stop()
        bus.close()


async def next_message(vehicle: Client) -> Message:
    message = await asyncio.wait_for(vehicle.inbox.get(), 5.0)
    assert message is not None
    return message


@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3, 4])
def test_exactly_those_inside_are_notified(seed: int | None, tmp_path: Path) -> None:
    async def work() -> None:
        placements = PAPER if seed is None else seeded(seed)
        result = await run_experiment(placements, f"embedded:{tmp_path / 'bus.db'}")
        incident = result.incident
        assert incident.at_alert is not None
        x, y, radius = result.area
        # Judged anew, on the flat plane, one by one.
        inside = [
            number
            for number in range(10)
            if math.dist(
                (incident.at_alert.x_m[number] / 100.0, incident.at_alert.y_m[number] / 100.0),
                (x, y),
            )
            <= radius
        ]
        assert sorted(incident.notified_ms) == inside
        assert result.as_in_paper
        assert incident.sensed == [0, 1, 2, 3]
        assert radius > EVENT[2]
        assert (incident.repeated, incident.further_alerts) == (0, 0)
        if seed is None:
            # Three that sensed it and two that came; not the one that left (6, 2).
            assert inside == [0, 2, 3, 4, 5]
            assert radius == pytest.approx(3.5)
            assert (x, y) == pytest.approx((5.2, 1.8))

    run(work())


def test_who_enters_later_is_notified_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            world(tmp_path) as here,
            here.vehicle("late", OUTSIDE) as late,
            here.vehicle("early", INSIDE) as early,
        ):
            sent = await here.office.alert(AREA, text="fire", validity_s=60.0)
            assert (await next_message(early)).id == sent.id
            await here.drive(late, OUTSIDE)
            assert len(late.inbox) == 0
            await here.drive(late, INSIDE)
            assert (await next_message(late)).id == sent.id
            await here.drive(late, INSIDE)
            await here.drive(early, INSIDE)
            assert (len(late.inbox), len(early.inbox)) == (0, 0)
            assert (late.dropped, early.dropped) == ({}, {})

    run(work())


def test_who_leaves_and_enters_again_is_not_notified_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as here, here.vehicle("car", INSIDE) as car:
            await here.office.alert(AREA, validity_s=60.0)
            await next_message(car)
            await here.drive(car, OUTSIDE)
            await here.drive(car, INSIDE)
            assert len(car.inbox) == 0
            assert car.dropped == {}  # the adapter knows, it does not leave that to the client

    run(work())


def test_an_alert_for_one_side_of_the_road(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            world(tmp_path) as here,
            here.vehicle("east", INSIDE, 80.0) as east,
            here.vehicle("west", INSIDE, 260.0) as west,
        ):
            area = Area(AREA.shape, HeadingSector(90.0, 45.0))
            sent = await here.office.alert(area, validity_s=60.0)
            assert (await next_message(east)).id == sent.id
            await here.looked(west)
            assert len(west.inbox) == 0
            assert west.dropped == {}
            # It turns round: now the alert is for it, too.
            west.move(*INSIDE, heading_deg=100.0, report=True)
            assert (await next_message(west)).id == sent.id

    run(work())
