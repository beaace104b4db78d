"""Workers on one bus: they come and go in good order, and what they know is found again."""

from __future__ import annotations

import asyncio
import os

import pytest
from live import Live, in_loop, live, until
from matcher.frontend import Frontend

from mercury.bus import Headers
from mercury.config import MatcherSettings
from mercury.matcher.service import SharedMatcher
from mercury.matcher.shared import state_log
from mercury.matcher.shared.routing import LANES
from mercury.matcher.shared.state_log import StateLog
from mercury.model.area import Polygon, Position
from mercury.model.matching import NearSubscription, Publication
from mercury.service import now_us

LAT, LON = 47.0, 8.0
TAXIS = 60


def worker(world: Live, number: int) -> SharedMatcher:
    settings = MatcherSettings(id=f"matcher-{number}", shared=True, snapshot_interval_s=0.3)
    return SharedMatcher(world.open(), settings)


def lanes_with(one: SharedMatcher) -> int:
    """How many lanes a worker has that somebody subscribed in."""
    return sum(
        lane.engine.statistics()["subscriptions"] > 0
        for unit in one.runners[1].units.values()
        for lane in unit.stage.lanes.values()  # type: ignore[attr-defined]
    )


@in_loop
async def test_workers_come_and_go_and_every_update_is_told_once() -> None:
    corners = ((46.85, 7.8), (46.85, 8.4), (47.4, 8.4), (47.4, 7.8))
    everywhere = Polygon(tuple(Position(*corner) for corner in corners))
    async with live() as world, Frontend(world.bus) as front:
        workers = [await world._start(worker(world, 0))]
        watch, *taxis = front.declare(
            NearSubscription("watch", "taxi", polygon=everywhere, inside=True),
            *(Publication(f"taxi-{number}", "taxi") for number in range(TAXIS)),
        )
        await until(lambda: lanes_with(workers[0]) == LANES)  # the watch is everywhere
        said: list[int] = []
        for step in range(60):
            if step in (15, 20):
                workers.append(await world._start(worker(world, step)))
            if step == 40:
                await world.stop(workers.pop(0))
            said.append(now_us())
            lats = [LAT + 0.003 * ((step + number) % 60) for number in range(TAXIS)]
            lons = [LON + 0.001 * number for number in range(TAXIS)]
            front.move(taxis, lats, lons, said[-1])
            await asyncio.sleep(0.03)  # the rate of moves, while workers come and go
        await until(lambda: front.heard[watch] >= TAXIS * len(said), timeout_s=20.0)
        for taxi in taxis:
            told = [one.time_us for one in front.told if one.publication == taxi]
            assert told == said
        assert front.inside() == {(watch, taxi) for taxi in taxis}
        taken = sum(runner.counters["taken_over"] for one in workers for runner in one.runners)
        assert taken


@in_loop
async def test_states_are_found_again_whole_and_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_log, "CHUNK_BYTES", 1000)
    async with live() as world:
        writer = StateLog(world.bus, now_us)
        large = os.urandom(10_500)
        writer.append((1, 0), 5, b"old")
        writer.append((1, 0), 9, large)
        writer.append((1, 0), 7, b"of somebody who was not the owner any more")
        writer.append((2, 0), 1, b"")
        # One whose writer died in the midst of it.
        parts: list[tuple[str, bytes, bytes, Headers]] = []
        monkeypatch.setattr(world.bus, "append", lambda *record: parts.append(record))
        writer.append((1, 0), 99, large)
        monkeypatch.undo()
        monkeypatch.setattr(state_log, "CHUNK_BYTES", 1000)
        for part in parts[:-1]:
            world.bus.append(*part)
        await world.bus.flush()
        reader = StateLog(world.open(), now_us)
        await reader.open()
        found = reader.newest((1, 0))
        assert found is not None
        assert (found.offset, found.data()) == (9, large)
        nothing = reader.newest((2, 0))
        assert nothing is not None
        assert nothing.data() == b""
        assert reader.newest((1, 1)) is None
        writer.append((1, 1), 3, b"later")
        await world.bus.flush()
        await reader.catch_up()
        later = reader.newest((1, 1))
        assert later is not None
        assert later.data() == b"later"
        reader.close()
