"""One of three matchers is killed, a fourth joins: each update is notified exactly once."""

from __future__ import annotations

import asyncio
import functools
import random
import signal
import uuid
from pathlib import Path

from integration.processes import Starter, starting
from live import in_loop, until
from matcher.frontend import Frontend

from mercury.bus import open_bus
from mercury.dev import KafkaBroker
from mercury.matching import Engine, MatchingRules
from mercury.model.area import Polygon, Position
from mercury.model.matching import EventType, NearSubscription, Publication
from mercury.service import now_us
from mercury.wire.match_frames import from_e7, to_e7

SETTINGS = """
[matcher]
shared = true
gateway = false
snapshot_interval_s = 1.0
tile_m = 3000.0
ttl_s = 600.0
"""
PUBLICATIONS, SUBSCRIPTIONS = 1500, 300
LAT, LON, WIDE = 47.0, 8.0, 0.12  # a square of 13 by 9 km
STEP = 0.0007  # up to 80 m an update: somebody is always on the way to another tile
TICK_S = 0.4
TICKS = 20  # of everybody; the kill is after a third, the new one joins after two thirds
SILENCE_S = 1.5
NOTIFIED_S = 60.0
WATCH = "watch"


class World:
    """Everything moves at random; what the matchers are sent, one engine is sent as well."""

    def __init__(self, front: Frontend, seed: int) -> None:
        self.front = front
        self.random = random.Random(seed)
        self.engine = Engine(MatchingRules(ttl_s=600.0))
        self.updates: dict[int, list[int]] = {}  # times since it began, by publication
        self._begun_us = 0
        corners = ((-1, -1), (-1, 1), (1, 1), (1, -1))
        everywhere = Polygon(
            tuple(
                Position(LAT + WIDE / 2 + y * WIDE, LON + WIDE / 2 + x * WIDE) for y, x in corners
            )
        )
        subscriptions = [
            # Without hysteresis who is inside follows from where everybody is, not from the way.
            NearSubscription(
                f"s{number}", "taxi", self.random.uniform(200.0, 600.0), hysteresis_m=0.0,
                where="seats >= 2" if number % 2 else "",
            )
            for number in range(SUBSCRIPTIONS)
        ]  # fmt: skip
        self.entities = [
            NearSubscription(WATCH, "taxi", polygon=everywhere, inside=True),
            *subscriptions,
            *(Publication(f"p{n}", "taxi", {"seats": n % 4}) for n in range(PUBLICATIONS)),
        ]
        time_us = now_us()
        self.keys = front.declare(*self.entities, time_us=time_us)
        self.refs = [
            self.engine.publish(one, time_us)
            if isinstance(one, Publication)
            else self.engine.subscribe(one, time_us)
            for one in self.entities
        ]
        self.places = [
            (LAT + self.random.uniform(0, WIDE), LON + self.random.uniform(0, WIDE))
            for _ in self.entities
        ]

    def begin(self) -> None:
        """What is said from now on counts."""
        self.updates.clear()
        self.front.heard.clear()
        self._begun_us = now_us()

    def place(self) -> None:
        """All but who watches say where they are."""
        time_us = now_us()
        some = range(1, len(self.entities))
        lats = from_e7(to_e7([self.places[one][0] for one in some])).tolist()
        lons = from_e7(to_e7([self.places[one][1] for one in some])).tolist()
        self.front.move(self.keys[1:], lats, lons, time_us)
        self.engine.move(self.refs[1:], lats, lons, [time_us] * len(some))
        for one in some:
            if isinstance(self.entities[one], Publication):
                self.updates.setdefault(self.keys[one], []).append(time_us)

    def drive(self) -> None:
        """Everybody goes on by a step, but stays in the square."""
        step = self.random.uniform
        self.places = [
            (
                min(max(lat + step(-STEP, STEP), LAT), LAT + WIDE),
                min(max(lon + step(-STEP, STEP), LON), LON + WIDE),
            )
            for lat, lon in self.places
        ]

    def inside(self) -> set[tuple[int, int]]:
        """By the engine, now."""
        names = dict(zip(self.refs, self.keys, strict=True))
        inside = set()
        events = self.engine.take()
        for event_type, subscription, publication in zip(
            events.event_type.tolist(),
            events.subscription.tolist(),
            events.publication.tolist(),
            strict=True,
        ):
            couple = (names[subscription], names[publication])
            if event_type == EventType.ENTER:
                inside.add(couple)
            elif event_type == EventType.EXIT:
                inside.remove(couple)
        return inside

    def notified_of(self) -> dict[int, list[int]]:
        """The updates that the one who watches everything was notified of."""
        watch = self.keys[0]
        found: dict[int, list[int]] = {}
        for event in self.front.told:
            if event.subscription == watch and event.time_us >= self._begun_us:
                found.setdefault(event.publication, []).append(event.time_us)
        return found


async def all_notified(world: World) -> None:
    """Wait until all updates have been notified, and nothing has come for a while after that."""
    front, count = world.front, sum(map(len, world.updates.values()))
    await until(lambda: front.heard[world.keys[0]] >= count, timeout_s=NOTIFIED_S)
    before = -1
    while len(front.told) != before:
        before = len(front.told)
        await asyncio.sleep(SILENCE_S)  # must pass: a repeated notification would come late


async def scenario(starter: Starter, seed: int) -> None:
    workers = [starter("matcher", "--id", f"matcher-{number}") for number in range(3)]
    for worker in workers:
        await worker.ready()
    bus = open_bus(starter.bus)
    try:
        async with Frontend(bus) as front:
            world = World(front, seed)
            world.place()
            # Who watches is known everywhere from here on: it was notified of everybody.
            await until(lambda: front.heard[world.keys[0]] >= PUBLICATIONS, timeout_s=NOTIFIED_S)
            world.begin()
            for tick in range(TICKS):
                if tick == TICKS // 3:
                    workers[1].process.kill()
                if tick == 2 * TICKS // 3:
                    workers.append(starter("matcher", "--id", "matcher-4"))
                world.drive()
                world.place()
                await asyncio.sleep(TICK_S)  # the rate of moves
            await all_notified(world)
            truth = world.inside()
            assert len(truth) > PUBLICATIONS
            assert world.notified_of() == world.updates
            assert front.inside() == truth
            await workers[3].ready()
            for worker in (workers[0], workers[2], workers[3]):
                assert await worker.end(signal.SIGTERM) == 0, worker.log
    finally:
        bus.close()


@functools.partial(in_loop, timeout_s=120.0)
async def test_on_the_embedded_bus(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    with starting(tmp_path) as starter:
        await scenario(starter, seed)


@functools.partial(in_loop, timeout_s=120.0)
async def test_killed_at_random_moments_on_kafka(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    with starting(tmp_path) as starter:
        starter.bus = f"{kafka_broker.uri}/{uuid.uuid4().hex}"
        await scenario(starter, seed)
