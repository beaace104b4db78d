"""Sessions over UDP at a real adapter, and what a real matcher makes of their reports."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from live import in_loop, live, until
from matching.bus_twin import bus_twin
from matching.twin import Twin
from roads.streets import tangle

from mercury.adapter import Adapter
from mercury.load.drivers.api import open_driver
from mercury.load.generator import Generator
from mercury.load.workload import Workload, WorkloadSettings
from mercury.matching import MatchingRules, warm_up
from mercury.model.errors import LoadError
from mercury.model.matching import EventType
from mercury.session import SessionSettings

ROADS = tangle(40, 1)
SETTINGS = WorkloadSettings(
    entities=40, rate_hz=4.0, topics=1, radius_m=(300.0, 1500.0), inside=True
)
MEDIATED = ("enter", "exit")


@pytest.fixture(autouse=True, scope="module")
def machine_code() -> None:
    """The first compilation takes longer than a test may."""
    warm_up()


def by_brute_force(load: Workload, seconds: float) -> dict[str, int]:
    """What the load must bring about, once everybody stands at its first place."""
    twin = Twin()
    for number, declared in enumerate(load.declarations()):
        put = twin.publish if load.publishes[number] else twin.subscribe
        put(declared, 0)  # type: ignore[arg-type]
    lats, lons = load.movement.positions(np.arange(len(load)), 0.0)
    for entity, (lat, lon) in enumerate(zip(lats, lons, strict=True)):
        twin.move(load.side_of(entity), load.id_of(entity), lat, lon, 0, 0.0)
    before = len(twin.notified)
    due = load.schedule().take(seconds, 10_000)
    lats, lons = load.movement.positions(due.entities, due.times_s)
    for entity, lat, lon, time_s in zip(due.entities, lats, lons, due.times_s, strict=True):
        name = load.id_of(entity)
        twin.move(load.side_of(entity), name, lat, lon, 1 + round(time_s * 1e6), load.accuracy_m)
    happened = [event.event_type for event in twin.notified[before:]]
    return {what.name.lower(): happened.count(what) for what in EventType}


async def drive(adapter: Adapter, load: Workload, **options: Any) -> dict[str, Any]:
    driver = open_driver(f"udp://127.0.0.1:{adapter.port}")
    return (await Generator(load, driver, **options).run()).to_json()


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
        peers = adapter.mediator.outgoing.peers
        assert peers.acknowledged.sum() > 0
        assert peers.resent.sum() < peers.acknowledged.sum() / 4  # a busy machine may be late


@in_loop
async def test_what_happens_during_the_warm_up_is_not_counted() -> None:
    load = Workload(ROADS, replace(SETTINGS, inside=False))
    async with live() as world, bus_twin(world.bus):
        found = await drive(await world.adapter(), load, seconds=1.0, warm_up_s=1.0)
    whole, before = by_brute_force(load, 2.0), by_brute_force(load, 1.0)
    assert before["enter"] > 0
    for what in MEDIATED:
        assert found["matches"][what] == pytest.approx(whole[what] - before[what], abs=2)
    assert found["matches"]["inside"] == 0


@in_loop
async def test_an_adapter_that_lags_by_several_updates_shows_it() -> None:
    load = Workload(ROADS, SETTINGS)
    async with live() as world:
        await world.matcher()
        adapter = await world.adapter()
        report, loop = adapter.moving.report, asyncio.get_running_loop()
        adapter.moving.report = (  # type: ignore[method-assign]
            lambda *what: loop.call_later(0.6, report, *what) and None
        )
        found = await drive(adapter, load, seconds=2.0)
    assert found["matches"]["inside"] > 50
    # Updates follow one another by 0.25 s; the last before an event would be a wrong one.
    assert found["latency"]["p50_ms"] > 590.0
    assert found["notes"] == []


@in_loop
async def test_declarations_are_repeated_until_they_are_answered() -> None:
    load = Workload(ROADS, SETTINGS)
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter()
        take, seen, taken = adapter.moving.request, set(), set()

        def lose_the_first(session: Any, envelope: Any, *time: Any) -> None:
            if envelope.id in seen:
                take(session, envelope, *time)
                taken.add(session.key)
            seen.add(envelope.id)

        adapter.moving.request = lose_the_first  # type: ignore[method-assign]
        found = await drive(adapter, load, seconds=1.5)
        # On a busy machine a session may end and its successor declare anew.
        assert len(taken) == 40 <= adapter.counters["declarations"] <= len(seen)
    assert found["matches"]["inside"] > 0


@in_loop
async def test_what_is_refused_ends_the_run_with_its_reason() -> None:
    load = Workload(ROADS, SETTINGS)
    rules = MatchingRules(max_radius_m=200.0)
    async with live() as world, bus_twin(world.bus, rules):
        adapter = await world.adapter()
        with pytest.raises(
            LoadError, match=r"udp://127.0.0.1:\d+ refuses the load: a scope of .* is wider"
        ):
            await drive(adapter, load, seconds=0.5)


@in_loop
async def test_no_answer_to_declarations_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercury.load.drivers.udp._CONNECT_S", 1.0)
    async with live() as world:
        adapter = await world.adapter()
        adapter.moving.request = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(LoadError, match="40 of 40 declarations were not answered"):
            await drive(adapter, Workload(ROADS, SETTINGS), seconds=0.5)


@in_loop
async def test_entities_declare_anew_at_an_adapter_that_was_started_again() -> None:
    load = Workload(ROADS, SETTINGS)
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter()
        port = adapter.port
        run = asyncio.create_task(drive(adapter, load, seconds=3.0))
        await until(lambda: adapter.counters["reports"] > 120)
        await world.stop(adapter)
        other = await world.adapter(port=port)
        found = await run
        assert other.counters["declarations"] == 40
        assert other.counters["moves"] > 100
    lost = [note for note in found["notes"] if "sessions were lost" in note]
    assert len(lost) == 1
    assert lost[0].startswith("40 sessions were lost and had to be opened again")
    assert found["sent"] + found["unsent"] == found["offered"] == 480


@in_loop
async def test_who_reports_rarely_keeps_its_session() -> None:
    load = Workload(ROADS, replace(SETTINGS, rate_hz=0.5))
    quick = SessionSettings(report_interval_s=0.5)
    async with live() as world:
        await world.matcher()
        adapter = await world.adapter(session=quick)
        found = await drive(adapter, load, seconds=2.0)
        assert adapter.counters["sessions_opened"] == 40
    assert found["sent"] == 40
    assert len(found["notes"]) == 1
    assert "wants a report every 0.5 s" in found["notes"][0]
    # What is said again is no update, and nobody waited for it.
    assert found["latency"]["max_ms"] < 1500.0
