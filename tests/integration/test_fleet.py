"""A fleet of real clients against a real adapter."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from live import iterate, until

from mercury.adapter import Adapter
from mercury.broker import Broker
from mercury.bus import Bus, open_bus
from mercury.config.settings import AdapterSettings, BrokerSettings
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import ConfigurationError, NotConnectedError
from mercury.roads.plane import Plane, PlaneFrame
from mercury.service.clock import now
from mercury.session import SessionSettings
from mercury.sim.fleet import Fleet

VEHICLES = 200
INTERVAL_S = 0.25
# Nobody is pruned on a machine that is busy.
SESSION = SessionSettings(report_interval_s=INTERVAL_S, missed_reports=100)
SIZE_M = 2000.0
LOSSY = "loss=50%"


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(work, 30.0))


def fleet_for(uri: str, vehicles: int = VEHICLES, **options: Any) -> Fleet:
    plane = Plane.scatter(vehicles, SIZE_M, SIZE_M, np.random.default_rng(3))
    frame = PlaneFrame(Position(40.7608, -111.8910))
    return Fleet(plane, frame, uri, session=SESSION, **options)


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[Bus, Adapter, str]]:
    bus = open_bus(f"embedded:{tmp_path / 'bus.db'}")
    adapter = Adapter(bus, AdapterSettings(port=0), SESSION)
    await adapter.start()
    try:
        yield bus, adapter, f"udp://127.0.0.1:{adapter.port}"
    finally:
        await adapter.stop()
        bus.close()


def test_all_connect_report_in_time_and_say_goodbye(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path) as (bus, adapter, uri):
            counts: list[int] = []
            fleet = fleet_for(uri, tick_s=0.1, on_connected=counts.append)
            before = fleet.traffic.copy()
            await fleet.start()
            assert fleet.connected == len(adapter.sessions.table) == VEHICLES
            assert counts == sorted(counts)
            assert counts[-1] == VEHICLES

            await bus.flush()
            reports = bus.subscribe((topics.REPORTS,), start="latest")
            begun, at_begin = now(), adapter.counters["reports"]
            await until(lambda: adapter.counters["reports"] >= at_begin + 5 * VEHICLES)
            lasted_s, reported = now() - begun, adapter.counters["reports"] - at_begin
            await bus.flush()
            on_bus = []
            while records := reports.poll():
                on_bus += [record.key for record in records]
            expected = VEHICLES * lasted_s / INTERVAL_S
            assert 0.4 * expected < reported < 1.3 * expected
            assert 0.9 * reported < len(on_bus) < 1.1 * reported + VEHICLES
            assert len(set(on_bus)) == VEHICLES
            reports.close()

            moved_m = np.hypot(fleet.traffic.x_m - before.x_m, fleet.traffic.y_m - before.y_m)
            assert np.median(moved_m) > 1.0
            for number, client in enumerate(fleet.clients):
                assert client.position is not None
                assert client.position.lat == fleet.traffic.lat[number]
                assert client.position.lon == fleet.traffic.lon[number]
            assert fleet.sessions_lost == 0
            await fleet.stop()
            await until(lambda: len(adapter.sessions.table) == 0)
            assert adapter.counters["sessions_closed"] == VEHICLES

    run(work())


def test_an_event_is_notified_to_those_it_concerns(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path) as (bus, adapter, uri):
            settings = BrokerSettings(emergency_radius_m=600.0, merge_distance_m=400.0)
            broker = Broker(bus, settings)
            await broker.start()
            fleet = fleet_for(uri, tick_s=None)
            await fleet.start()
            try:
                assert not (await fleet.simulate_event(1.0, 1.0, 0.5)).sensed
                witnesses = fleet.plane.inside_circle(1000.0, 1000.0, 200.0).tolist()
                incident = await fleet.simulate_event(1000.0, 1000.0, 200.0)
                assert incident.sensed == witnesses
                assert len(witnesses) > 2
                await until(lambda: incident.area is not None and not incident.missed)
                await until(lambda: not adapter.mediator.outgoing.waiting)
                assert sorted(incident.notified_ms) == incident.inside
                assert len(witnesses) < len(incident.inside) < VEHICLES
                assert incident.notified_outside == []
                assert fleet.unrelated_alerts == 0
            finally:
                await fleet.stop()
                await broker.stop()

    run(work())


async def landed(fleet: Fleet) -> None:
    """Wait until what the links had taken up has arrived."""
    await until(lambda: not any(one._endpoint._in_flight for one in fleet.clients))
    await iterate(10)


def test_over_links_who_is_in_range_drives_and_who_is_not_goes_on_trying(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path) as (_, adapter, uri):
            counts: list[int] = []
            fleet = fleet_for(
                uri, vehicles=100, tick_s=None, on_connected=counts.append,
                link="range=600m,loss=10%,delay=5ms",
            )  # fmt: skip
            assert fleet.antenna == (1000.0, 1000.0)
            x_m, y_m = fleet.traffic.x_m, fleet.traffic.y_m
            near = np.flatnonzero(np.hypot(x_m - 1000.0, y_m - 1000.0) <= 600.0).tolist()
            assert 10 < len(near) < 50
            await fleet.start()
            try:
                await until(lambda: fleet.connected == len(near))
                have = set(adapter.sessions.table.by_identity)
                assert have == {fleet.identities[number] for number in near}
                assert counts[-1] <= len(near)
                await fleet.advance(0.0, report=True)
                fleet.antenna = (-9000.0, 0.0)  # out of everybody's reach
                await landed(fleet)
                before = adapter.counters["packets_received"]
                await fleet.advance(0.0, report=True)
                await landed(fleet)
                assert adapter.counters["packets_received"] == before
                lost = fleet.link_statistics()["up"].lost
                assert set(lost) == {"random", "range"}
                assert lost["range"] >= 100
            finally:
                await fleet.stop()

    run(work())


def test_the_same_seed_gives_each_vehicle_the_same_link_and_no_two_the_same() -> None:
    def fates(seed: int) -> list[tuple[bool, ...]]:
        links = [
            one.link for one in fleet_for("udp://127.0.0.1:9", 5, seed=seed, link=LOSSY).clients
        ]
        return [tuple(bool(link.carry("up", 1, 0.0)) for _ in range(64)) for link in links if link]

    assert fates(1) == fates(1)
    assert len({*fates(1), *fates(2)}) == 10


def test_over_a_dead_link_nobody_gets_a_session() -> None:
    async def work() -> None:
        fleet = fleet_for("udp://127.0.0.1:9", vehicles=3, connect_timeout_s=0.2, link="loss=1")
        with pytest.raises(NotConnectedError, match="none of 3 vehicles got a session over its"):
            await fleet.start()

    run(work())


def test_no_adapter_is_a_clear_error() -> None:
    async def work() -> None:
        fleet = fleet_for("udp://127.0.0.1:9", vehicles=3, connect_timeout_s=0.2)
        with pytest.raises(NotConnectedError, match="0 of 3 vehicles have a session: no answer"):
            await fleet.start()

    run(work())


def test_more_sockets_than_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with pytest.raises(ConfigurationError, match=r"need 328 open files .* allows 300"):
            await fleet_for("udp://127.0.0.1:9").start()

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 300))
    run(work())


def test_the_command_says_what_happened_when_it_is_stopped(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path) as (_, adapter, uri):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "from mercury.cli.lab.sim import app; app()"),
                *("--vehicles", "5", "--adapter", uri, "--json", "--event", "2000,2000,4000"),
                *("--event-after", "0", "--link", "wifi,range=9km,loss=0,delay=1ms"),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert process.stderr is not None
            assert b"5 of 5 vehicles connected" in await process.stderr.readline()
            await until(lambda: adapter.counters["messages"] >= 5)
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
            assert process.returncode == 0, err
            (line,) = out.splitlines()
            result = json.loads(line)
            assert (result["vehicles"], result["connected"]) == (5, 5)
            assert len(result["incidents"][0]["sensed"]) == 5
            assert result["link"]["up"]["sent"] == result["link"]["up"]["arrived"] > 10
            assert result["link"]["down"]["lost"] == {}
            await until(lambda: len(adapter.sessions.table) == 0)

    run(work())


def test_the_command_says_for_people_what_the_links_lost(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path) as (_, _adapter, uri):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "from mercury.cli.lab.sim import app; app()"),
                *("--vehicles", "20", "--adapter", uri, "--for", "1.5", "--seed", "5"),
                *("--report-interval", "0.2", "--link", "up:lossy30;down:delay=10ms"),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            assert process.returncode == 0, err
            last = out.decode().splitlines()[-1]
            found = re.fullmatch(
                r"The links lost (.*) % of (\d+) packets \(random \d+\) up"
                r" and none of \d+ packets down\.",
                last,
            )
            assert found, last
            assert 15 < float(found[1]) < 45
            assert int(found[2]) > 50

    run(work())
