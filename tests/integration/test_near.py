"""Clients, adapters and a real matcher over the bus: who comes near whom, notified exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import AsyncExitStack

import pytest
from live import HERE, NEAR, connect, in_loop, live, until
from wire.frames import Happened, read_frame

from mercury.matching import warm_up
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, Match, Publication, entity_key
from mercury.session import SessionSettings

QUICK = SessionSettings(report_interval_s=0.1, missed_reports=100)
LINK = "loss=0.2,delay=5ms,duplicate=0.05,reorder=0.05"


@pytest.fixture(scope="module", autouse=True)
def _machine_code() -> None:
    """The first test of a fresh checkout would wait half a minute for it, in vain."""
    warm_up()


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@in_loop
async def test_comes_is_asked_for_is_refused_and_goes(shared: bool) -> None:
    async with live() as world:
        await world.matcher(shared=shared, max_radius_m=5000.0)
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "me") as me, connect(adapter, "cab", NEAR) as cab:
            heard: list[Match] = []
            stream = me.near("taxi", radius_m=500.0, where="seats > 1", handler=heard.append)
            taxi = await cab.publish_moving("taxi", {"seats": 4})
            await until(lambda: heard)
            assert (heard[0].event_type, heard[0].values) == (EventType.ENTER, {"seats": 4})
            assert heard[0].distance_m == pytest.approx(111.2, abs=0.5)
            found = await me.ask_near("taxi", radius_m=500.0, limit=5)
            assert [(one.publication, one.values) for one in found] == [("cab/taxi", {"seats": 4})]
            assert await me.ask_near("taxi", radius_m=50.0) == []
            await taxi.update({"seats": 1})
            await until(lambda: len(heard) == 2)
            assert heard[1].event_type is EventType.EXIT
            with pytest.raises(MatchingError, match="wider than"):
                await me.near("taxi", radius_m=6000.0).declared(10.0)
            await taxi.update({"seats": 2})
            await until(lambda: len(heard) == 3)
            await taxi.withdraw()
            await until(lambda: len(heard) == 4)
            assert heard[3].event_type is EventType.EXIT
            assert stream.inside == []


@in_loop
async def test_a_fleet_over_a_link_that_loses_a_fifth() -> None:
    dice = random.Random(8)
    async with live() as world, AsyncExitStack() as stack:
        await world.matcher()
        adapter = await world.adapter(session=QUICK)
        matches = world.read(topics.MATCHES)

        async def client(name: str, spread_m: float) -> object:
            place = somewhere(dice, spread_m)
            one = connect(adapter, name, place, link=LINK, connect_timeout_s=30.0)
            return await stack.enter_async_context(one)

        cabs = [await client(f"cab-{number}", 1000.0) for number in range(8)]
        people = [await client(f"person-{number}", 300.0) for number in range(4)]
        heard: dict[str, list[tuple[int, str]]] = defaultdict(list)
        streams = {}
        for person in people:
            name = person.identity
            streams[name] = person.near(
                "taxi",
                radius_m=500.0,
                timeout_s=30.0,
                handler=lambda one, name=name: heard[name].append((one.time_us, one.publication)),
            )
        await asyncio.gather(*(stream.declared(30.0) for stream in streams.values()))
        await asyncio.gather(
            *(cab.moving.publish(Publication("taxi", "taxi"), 30.0) for cab in cabs)
        )
        for _ in range(40):
            moves = adapter.counters["moves"]
            for one in (*cabs, *people):
                place = somewhere(dice, 1000.0)
                one.move(place.lat, place.lon, report=True)
            await until(lambda moves=moves: adapter.counters["moves"] >= moves + len(cabs))
        for one in (*cabs, *people):  # all at one place: whoever was not inside comes in
            one.move(HERE.lat, HERE.lon, report=True)
        names = {f"{cab.identity}/taxi" for cab in cabs}
        await until(lambda: all(set(s.pairs.inside) == names for s in streams.values()), 30.0)
        await until(lambda: not adapter.mediator.outgoing.waiting, 30.0)
        await until(lambda: not any(s.pairs.has_gap for s in streams.values()), 30.0)

        truth: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for record in matches.poll(100_000):
            for segment in read_frame(record.value):
                if isinstance(segment, Happened):
                    for row in segment.rows:
                        event = (int(row["time_us"]), int(row["publication"]))
                        truth[int(row["subscription"])].append(event)
        count = 0
        for name in streams:
            events = [(at, entity_key("publication", cab)) for at, cab in heard[name]]
            assert events == truth[entity_key("subscription", f"{name}/taxi")]
            count += len(events)
        assert count > 100
        assert adapter.mediator.outgoing.topics["near"].resent > 10


def somewhere(dice: random.Random, spread_m: float) -> Position:
    north_m, east_m = dice.uniform(-spread_m, spread_m), dice.uniform(-spread_m, spread_m)
    return Position(HERE.lat + north_m / 111_200.0, HERE.lon + east_m / 84_000.0)
