"""Many workers come to what one engine comes to, whoever works when and whoever dies."""

from __future__ import annotations

import random

import pytest
from matcher.stages import Works

from mercury.matching import Engine, MatchingRules
from mercury.model.moving import Happening, NearSubscription, Publication, entity_key
from mercury.wire.moving import from_e7, to_e7

RULES = MatchingRules(hysteresis_m=50.0, ttl_s=3600.0)
LAT, LON = 47.0, 8.0
SPREAD = 0.05  # degrees: several tiles
SECOND = 1_000_000


class City:
    """The same moves for the stages and for one engine."""

    def __init__(self, seed: int, works: Works, rules: MatchingRules = RULES) -> None:
        self.random = random.Random(seed)
        self.works = works
        self.engine = Engine(rules)
        self.keys: dict[int, int] = {}  # engine's references -> keys
        self.refs: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.places: dict[int, tuple[float, float]] = {}
        self.told: set[tuple[int, int]] = set()
        self.time_us = SECOND

    def declare(self, what: Publication | NearSubscription) -> int:
        key = self.works.declare(what, self.time_us)
        if isinstance(what, Publication):
            ref = self.engine.publish(what, self.time_us)
        else:
            ref = self.engine.subscribe(what, self.time_us)
        self.keys[ref], self.refs[key] = key, ref
        self.names[key] = what.id
        return key

    def place(self, key: int, lat: float, lon: float) -> tuple[int, float, float, int]:
        lat, lon = float(from_e7(to_e7(lat))), float(from_e7(to_e7(lon)))
        self.places[key] = (lat, lon)
        self.engine.move([self.refs[key]], [lat], [lon], [self.time_us], [0.0])
        return key, lat, lon, self.time_us

    def populate(self, publications: int, subscriptions: int, radius_m: float = 800.0) -> None:
        for number in range(publications):
            self.declare(Publication(f"p{number}", "taxi", {"seats": number % 5}))
        for number in range(subscriptions):
            where = "seats >= 2" if number % 3 == 0 else ""
            self.declare(
                NearSubscription(
                    f"s{number}", "taxi", radius_m * (1 + number % 3), where=where,
                    inside=number % 4 == 0,
                )
            )  # fmt: skip
        self.works.move(
            [
                self.place(
                    key,
                    LAT + self.random.uniform(0, SPREAD),
                    LON + self.random.uniform(0, SPREAD),
                )
                for key in list(self.refs)
            ]
        )

    def drive(self, side: str = "", step: float = 0.004) -> None:
        """Everybody moves a little, or all of one side: then it is the same who moves first."""
        self.time_us += SECOND
        self.works.now_us = self.time_us
        moves = []
        for key in list(self.refs):
            if self.random.random() < 0.3 or not self.names[key].startswith(side):
                continue
            lat, lon = self.places[key]
            lat = min(max(lat + self.random.uniform(-step, step), LAT), LAT + SPREAD)
            lon = min(max(lon + self.random.uniform(-step, step), LON), LON + SPREAD)
            moves.append(self.place(key, lat, lon))
        self.works.move(moves)

    def inside(self) -> set[tuple[int, int]]:
        """By the engine."""
        events = self.engine.take()
        for happening, sub, pub in zip(
            events.happening.tolist(),
            events.subscription.tolist(),
            events.publication.tolist(),
            strict=True,
        ):
            couple = (self.keys[sub], self.keys[pub])
            if happening == Happening.ENTER:
                self.told.add(couple)
            elif happening == Happening.EXIT:
                self.told.remove(couple)
        return self.told


@pytest.mark.parametrize("seed", range(3))
def test_at_rest_many_come_to_what_one_comes_to(seed: int) -> None:
    works = Works(seed, RULES)
    city = City(seed, works)
    city.populate(40, 24)
    works.work()
    assert works.inside() == city.inside()
    assert city.inside()
    for turn in range(12):
        city.drive("ps"[turn % 2])
        works.work()
        assert works.inside() == city.inside()
    assert works.dropped() == {}
    assert set(works.described) >= {told.publication for told in works.told}


@pytest.mark.parametrize("seed", range(4))
def test_workers_die_and_nothing_is_lost_or_told_twice(seed: int) -> None:
    works = Works(seed, RULES)
    city = City(seed, works)
    city.populate(40, 24)
    works.work(killing=0.05)
    for turn in range(10):
        city.drive("ps"[turn % 2])
        works.work(killing=0.05)
        assert works.inside() == city.inside()
    assert set(works.dropped()) <= {"overtaken"}


@pytest.mark.parametrize("seed", range(3))
def test_under_way_enters_and_exits_alternate_and_all_is_right_in_the_end(seed: int) -> None:
    """Who moves while others are still at work with what was before: hysteresis may differ."""
    rules = MatchingRules(hysteresis_m=0.0, ttl_s=3600.0)
    works = Works(seed, rules)
    city = City(seed, works, rules)
    city.populate(40, 24)
    for _ in range(10):
        city.drive(step=0.01)
        works.work_a_little(40, killing=0.03)
        works.inside()
    works.work(killing=0.03)
    assert works.inside() == city.inside()


def test_who_is_refused_hears_why() -> None:
    works = Works(1, MatchingRules(max_radius_m=1000.0))
    key = works.declare(NearSubscription("wide", "taxi", 2000.0), SECOND)
    works.work()
    [refused] = works.refused
    assert refused.key == key == entity_key("subscription", "wide")
    assert refused.reason == "radius"
    assert "2.0 km" in refused.sentence
