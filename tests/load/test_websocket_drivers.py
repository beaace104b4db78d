"""The binary and the JSON driver against a real server on the loopback."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace

import pytest
from live import in_loop, iterate, until
from load.gateway import open_gateway
from matching.twin import Twin
from roads.streets import tangle

from mercury.load.drivers.api import open_driver
from mercury.load.generator import Generator, LoadResult
from mercury.load.workload import Workload, WorkloadSettings
from mercury.model.errors import LoadError, PacketError
from mercury.model.matching import EventType
from mercury.wire.gateway_frames import read_server_frame

ROADS = tangle(40, 1)
SETTINGS = WorkloadSettings(entities=120, rate_hz=4.0, topics=2, radius_m=(300.0, 1500.0))
SCHEMES = ["ws", "ws+json"]


def workload(*, inside: bool = False) -> Workload:
    return Workload(ROADS, replace(SETTINGS, inside=inside))


async def run(
    uri: str, *, connections: int = 1, seconds: float = 1.0, **options: float
) -> LoadResult:
    driver = open_driver(uri, connections=connections)
    return await Generator(workload(), driver, seconds=seconds, **options).run()


def by_brute_force(seconds: float, *, inside: bool = False) -> dict[str, int]:
    """What the load must bring about."""
    load, twin = workload(inside=inside), Twin()
    for number, declared in enumerate(load.declarations()):
        put = twin.publish if load.publishes[number] else twin.subscribe
        put(declared, 0)  # type: ignore[arg-type]
    due = load.schedule().take(seconds, 10_000)
    lats, lons = load.movement.positions(due.entities, due.times_s)
    for entity, lat, lon, time_s in zip(due.entities, lats, lons, due.times_s, strict=True):
        name = load.id_of(entity)
        twin.move(load.side_of(entity), name, lat, lon, round(time_s * 1e6), load.accuracy_m)
    happened = [event.event_type for event in twin.notified]
    return {what.name.lower(): happened.count(what) for what in EventType}


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
@in_loop
async def test_updates_arrive_and_events_are_counted(scheme: str, connections: int) -> None:
    async with open_gateway() as gateway:
        result = await run(f"{scheme}://127.0.0.1:{gateway.port}", connections=connections)
        assert len(gateway.connections) == connections
        assert all(one.subprotocol for one in gateway.connections)
        assert len(gateway.times_us) == result.offered == 480
        assert gateway.accuracies_m == {5.0}
    found = result.to_json()
    assert (found["sent"], found["taken"], found["dropped"]) == (480, 480, 0)
    wanted = by_brute_force(1.0)
    assert wanted["enter"] > 20
    assert wanted["exit"] > 0
    if scheme == "ws":  # seven decimals make no difference here
        assert found["matches"] == wanted
    assert sum(found["matches"].values()) == pytest.approx(sum(wanted.values()), abs=2)
    latency = found["latency"]
    assert 0.0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"] < 20_000.0
    assert found["notes"] == []


@in_loop
async def test_subscriptions_may_be_told_at_every_update() -> None:
    async with open_gateway() as gateway:
        driver = open_driver(f"ws://127.0.0.1:{gateway.port}")
        result = await Generator(workload(inside=True), driver, seconds=0.5).run()
    wanted = by_brute_force(0.5, inside=True)
    assert wanted["inside"] > 50
    assert result.counters.matches_by_name() == wanted


@in_loop
async def test_what_happens_during_the_warm_up_is_not_counted() -> None:
    async with open_gateway() as gateway:
        result = await run(f"ws://127.0.0.1:{gateway.port}", seconds=0.75, warm_up_s=0.5)
    whole, before = by_brute_force(1.25), by_brute_force(0.5)
    assert before["enter"] > 10
    found = result.counters.matches_by_name()
    assert found["enter"] == pytest.approx(whole["enter"] - before["enter"], abs=1)
    assert result.offered == 600


@pytest.mark.parametrize("scheme", SCHEMES)
@in_loop
async def test_a_server_that_stops_reading_changes_nothing_of_the_load(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercury.load.drivers.websocket.BACKLOG_ROWS", 50)
    monkeypatch.setattr("mercury.load.generator._DRAIN_S", 0.2)
    async with open_gateway() as gateway:
        driver = open_driver(f"{scheme}://127.0.0.1:{gateway.port}")
        monkeypatch.setattr(driver, "drain", lambda _: iterate())
        # The transport would swallow these few rows by itself.
        monkeypatch.setattr("mercury.load.drivers.websocket.GatewayConnection.write", _never)
        result = await Generator(workload(), driver, seconds=1.0).run()
    found = result.to_json()
    assert found["offered"] == 480
    assert 0 < found["sent"] <= 50
    assert found["unsent"] == 480 - found["sent"]
    assert "updates waited for the server" in found["notes"][0]


async def _never(_link: object) -> None:
    await asyncio.Event().wait()


@in_loop
async def test_latency_is_counted_from_when_an_update_was_due() -> None:
    async with open_gateway() as gateway:

        async def stand_still() -> None:
            await until(lambda: gateway.taken > 5)
            gateway.going.clear()
            await asyncio.sleep(0.5)  # must pass: it is the latency that is measured
            gateway.going.set()

        standing = asyncio.create_task(stand_still())
        result = await run(f"ws://127.0.0.1:{gateway.port}", seconds=1.0)
        await standing
    found = result.to_json()
    assert (found["offered"], found["taken"]) == (480, 480)
    assert found["latency"]["max_ms"] > 300.0
    assert found["latency"]["max_ms"] > 3.0 * found["own_lag"]["p50_ms"]


@in_loop
async def test_a_connection_that_breaks_is_told_and_the_load_goes_on() -> None:
    async with open_gateway() as gateway:
        gateway.hang_up_after = 20
        result = await run(f"ws://127.0.0.1:{gateway.port}")
    found = result.to_json()
    assert found["offered"] == 480
    assert found["taken"] < 480
    assert found["sent"] + found["unsent"] == 480
    assert any("the connection broke" in note and "too much" in note for note in found["notes"])


@in_loop
async def test_a_server_that_refuses_is_told_with_its_reason() -> None:
    async with open_gateway() as gateway:
        gateway.refuse = "there is no topic 'topic-0' here"
        with pytest.raises(LoadError, match="refuses the load: there is no topic 'topic-0' here"):
            await run(f"ws://127.0.0.1:{gateway.port}")


@in_loop
async def test_nobody_there_is_one_sentence() -> None:
    with pytest.raises(LoadError, match="cannot reach ws://127.0.0.1:1/v1/match"):
        await run("ws://127.0.0.1:1")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"Mv\x01",
        struct.pack("<2sBBI", b"xx", 1, 2, 1) + bytes(32),
        struct.pack("<2sBBI", b"Mv", 2, 2, 1) + bytes(32),
        struct.pack("<2sBBI", b"Mv", 1, 9, 1) + bytes(32),
        struct.pack("<2sBBI", b"Mv", 1, 2, 2) + bytes(32),
        struct.pack("<2sBBI", b"Mv", 1, 3, 0),
    ],
)
def test_frames_that_are_none_are_not_read(frame: bytes) -> None:
    with pytest.raises(PacketError):
        read_server_frame(frame)
