"""Sessions over UDP at a real adapter, and what a real matcher makes of their reports."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from live import Live, in_loop, live
from load.streets import tangle
from matching.bus_twin import bus_twin
from matching.twin import Twin

from mercury.adapter import Adapter
from mercury.load.drivers import open_driver
from mercury.load.drivers.udp import UdpDriver
from mercury.load.generator import Generator
from mercury.load.workload import Workload, WorkloadSettings
from mercury.model.errors import LoadError
from mercury.model.moving import Happening
from mercury.session import SessionSettings

ROADS = tangle(40, 1)
SETTINGS = WorkloadSettings(
    entities=40, rate_hz=4.0, topics=1, radius_m=(300.0, 1500.0), inside=True
)
MEDIATED = ("enter", "exit")


def by_brute_force(load: Workload, seconds: float) -> dict[str, int]:
    """What the load must bring about, once everybody stands at its first place."""
    twin = Twin()
    for number, declared in enumerate(load.declarations()):
        put = twin.publish if load.publishes[number] else twin.subscribe
        put(declared, 0)  # type: ignore[arg-type]
    lats, lons = load.movement.positions(np.arange(len(load)), 0.0)
    for entity, (lat, lon) in enumerate(zip(lats, lons, strict=True)):
        twin.move(load.side_of(entity), load.id_of(entity), lat, lon, 0, 0.0)
    before = len(twin.told)
    due = load.schedule().take(seconds, 10_000)
    lats, lons = load.movement.positions(due.entities, due.times_s)
    for entity, lat, lon, time_s in zip(due.entities, lats, lons, due.times_s, strict=True):
        name = load.id_of(entity)
        twin.move(load.side_of(entity), name, lat, lon, 1 + round(time_s * 1e6), load.accuracy_m)
    happened = [told.happening for told in twin.told[before:]]
    return {what.name.lower(): happened.count(what) for what in Happening}


async def drive(adapter: Adapter, load: Workload, **options: Any) -> dict[str, Any]:
    driver = open_driver(f"udp://127.0.0.1:{adapter.port}")
    return (await Generator(load, driver, **options).run()).to_json()


async def unanswered(adapter: Adapter) -> int:
    """Copies that the adapter still has to send again."""
    return int(adapter.deliveries.outgoing.peers.waiting.sum())


@in_loop
async def test_entities_meet_over_udp() -> None:
    load = Workload(ROADS, SETTINGS)
    async with live() as world:
        await world.matcher()
        adapter = await world.adapter()
        found = await drive(adapter, load, seconds=2.0)
        assert (found["offered"], found["sent"], found["unsent"]) == (320, 320, 0)
        assert found["taken"] is None
        assert adapter.counters["declarations"] == 40
        assert adapter.counters["declarations_refused"] == 0
        assert found["notes"] == []
        wanted = by_brute_force(load, 2.0)
        assert wanted["enter"] > 0
        assert wanted["exit"] > 0
        assert wanted["inside"] > 100
        for what in MEDIATED:
            assert found["matches"][what] == pytest.approx(wanted[what], abs=2)
        assert found["matches"]["inside"] == pytest.approx(wanted["inside"], rel=0.03)
        latency = found["latency"]
        assert 0.0 < latency["p50_ms"] <= latency["max_ms"] < 10_000.0
