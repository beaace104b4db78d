"""Many workers come to what one engine comes to, whoever works when and whoever dies."""

from __future__ import annotations

import math
import random

import pytest
from matcher.shared.stages import PARTITIONS, Works

from mercury.matcher.shared.lanes import Lanes
from mercury.matcher.shared.roster import Roster
from mercury.matcher.shared.stage import Parcel
from mercury.matching import Engine, MatchingRules
from mercury.model import topics
from mercury.model.area import Polygon, Position
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, NearSubscription, Publication, entity_key
from mercury.wire.match_frames import from_e7, rows_of, split_frame, to_e7
from mercury.wire.worker_frames import SIGHTINGS

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
        for key in [one for one in self.refs if one in self.places]:
            if self.random.random() < 0.3 or not self.names[key].startswith(side):
                continue
            lat, lon = self.places[key]
            lat = min(max(lat + self.random.uniform(-step, step), LAT), LAT + SPREAD)
            lon = min(max(lon + self.random.uniform(-step, step), LON), LON + SPREAD)
            moves.append(self.place(key, lat, lon))
        self.works.move(moves)

    def change(self, side: str) -> None:
        """Some publications or some subscriptions become others, and some go."""
        self.time_us += SECOND
        self.works.now_us = self.time_us
        ours = [key for key in self.refs if self.names[key].startswith(side)]
        for key in self.random.sample(ours, 4):
            name = self.names[key]
            subscription = name.startswith("s")
            fate = self.random.randrange(4)
            topic = "taxi" if fate else "bus"
            if fate == 3:
                self.works.withdraw(key, self.time_us)
                self.engine.withdraw(self.refs.pop(key), self.time_us)
            elif subscription:
                radius_m = self.random.uniform(300.0, 3000.0)
                self.declare(NearSubscription(name, topic, radius_m, where="seats != 3"))
            else:
                self.declare(Publication(name, topic, {"seats": self.random.randrange(5)}))

    def inside(self) -> set[tuple[int, int]]:
        """By the engine."""
        events = self.engine.take()
        for event_type, sub, pub in zip(
            events.event_type.tolist(),
            events.subscription.tolist(),
            events.publication.tolist(),
            strict=True,
        ):
            couple = (self.keys[sub], self.keys[pub])
            if event_type == EventType.ENTER:
                self.told.add(couple)
            elif event_type == EventType.EXIT:
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
    for flush in range(12):
        city.drive("ps"[flush % 2])
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
    for flush in range(10):
        city.drive("ps"[flush % 2])
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


@pytest.mark.parametrize("seed", range(3))
def test_what_changes_and_goes_is_told_rightly(seed: int) -> None:
    works = Works(seed, RULES)
    city = City(seed, works)
    city.populate(40, 24)
    corners = ((0.2, 0.2), (0.2, 0.8), (0.8, 0.8), (0.8, 0.2))
    square = Polygon(tuple(Position(LAT + y * SPREAD, LON + x * SPREAD) for y, x in corners))
    city.declare(NearSubscription("square", "taxi", polygon=square))
    works.work()
    for flush in range(8):
        city.drive("ps"[flush % 2])
        works.work(killing=0.02)
        city.change("ps"[flush % 2])
        works.work(killing=0.02)
        assert works.inside() == city.inside()
    assert set(works.dropped()) <= {"overtaken"}


@pytest.mark.parametrize("seed", range(2))
def test_crowded_places_are_split_and_nobody_notices(seed: int) -> None:
    works = Works(seed, RULES, split_above=8)
    city = City(seed, works)
    city.populate(120, 12)
    works.work()
    for flush in range(6):
        city.drive("ps"[flush % 2])
        works.work()
        works.tell_time(city.time_us + flush * 10 * SECOND)
        works.work(killing=0.02)
        assert works.inside() == city.inside()
    rosters = [works.units[topics.ENTITIES, part].stage for part in range(4)]
    splits = rosters[0].routing.splits
    assert splits
    assert all(roster.routing.splits == splits for roster in rosters)


def test_who_is_inside_by_hysteresis_stays_so_over_the_border_of_lanes() -> None:
    works = Works(3, RULES)
    roster = works.units[topics.ENTITIES, 0].stage
    step = roster.routing.grid.step_deg
    border = math.ceil((LAT + 90.0) / step) * step - 90.0  # between two rows of tiles
    taxi = works.declare(Publication("taxi", "taxi"), SECOND)
    me = works.declare(NearSubscription("me", "taxi", 500.0, hysteresis_m=100.0), SECOND)
    metre = 1.0 / 111_195.0
    here = border - 480.0 * metre
    works.move([(me, here, LON, SECOND), (taxi, border - 1.0 * metre, LON, SECOND)])
    works.work()
    assert [told.event_type for told in works.told] == [EventType.ENTER]
    for number, beyond_m in enumerate((50.0, 90.0, 70.0)):  # 530 to 570 m: neither in nor out
        works.move([(taxi, border + beyond_m * metre, LON, (2 + number) * SECOND)])
        works.work()
    assert len(works.told) == 1
    works.move([(taxi, border + 130.0 * metre, LON, 9 * SECOND)])  # 610 m
    works.work()
    assert [told[::3] for told in works.told[1:]] == [(EventType.EXIT, 9 * SECOND)]


def test_what_says_nothing_expires_and_positions_that_may_be_wrong_count() -> None:
    rules = MatchingRules(hysteresis_m=10.0, ttl_s=30.0)
    works = Works(4, rules)
    taxi = works.declare(Publication("taxi", "taxi"), SECOND)
    me = works.declare(NearSubscription("me", "taxi", 500.0, ttl_s=3600.0), SECOND)
    works.move([(me, LAT, LON, SECOND), (taxi, LAT, LON, 2 * SECOND)])
    works.work()
    works.tell_time(32 * SECOND - 1)
    works.work()
    assert len(works.told) == 1
    works.tell_time(32 * SECOND)
    works.tell_time(33 * SECOND)
    works.work()
    assert works.told[1:] == [(EventType.EXIT, me, taxi, 32 * SECOND)]
    works.move([(taxi, LAT, LON, 40 * SECOND)])
    works.work()
    assert works.dropped() == {"unknown": 1}


@pytest.mark.parametrize("topic", [topics.ENTITIES, topics.TILES, topics.SIGHTINGS])
def test_a_state_is_the_same_after_it_was_put_away(topic: str) -> None:
    works = Works(5, RULES)
    city = City(5, works)
    city.populate(40, 24)
    city.drive()
    works.work_a_little(60)  # some publications wait for their arrival
    for part in range(4):
        unit = works.units[topic, part]
        data = unit.stage.snapshot()
        again = unit.make()
        again.restore(data)
        rest = works.logs.get((topic, part), [])[unit.done :][:20]
        assert [one[:3] for one in again.process(rest)] == [
            one[:3] for one in unit.stage.process(rest)
        ]


@pytest.mark.parametrize("data", [b"", b"nonsense", b"MvS1\x04\x00"])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(MatchingError):
        Roster(0, RULES, 2000.0, 1000).restore(data)


def test_who_is_refused_hears_why() -> None:
    works = Works(1, MatchingRules(max_radius_m=1000.0))
    key = works.declare(NearSubscription("wide", "taxi", 2000.0), SECOND)
    works.work()
    [refused] = works.refused
    assert refused.key == key == entity_key("subscription", "wide")
    assert refused.reason == "radius"
    assert "2.0 km" in refused.sentence


def test_what_lanes_see_follows_from_the_same_records_however_they_are_cut() -> None:
    rules = MatchingRules(hysteresis_m=0.0, ttl_s=3600.0)
    works = Works(3, rules)
    city = City(3, works, rules)
    city.populate(40, 24)
    for _ in range(6):
        city.drive(step=0.01)
        works.work()
    compared = 0
    for part in range(PARTITIONS):
        log = works.logs[topics.TILES, part]
        whole, single = Lanes(part, rules), Lanes(part, rules)
        at_once = sightings(whole.process(log))
        assert at_once == sightings([one for record in log for one in single.process([record])])
        compared += len({row[0] for row in at_once})
    assert compared > 50  # different origins


def sightings(parcels: list[Parcel]) -> list[tuple[float, ...]]:
    segments = [one for parcel in parcels for one in split_frame(parcel.value)]
    found = [row for kind, data in segments if kind == b"G" for row in rows_of(data, SIGHTINGS)]
    return sorted(tuple(row.tolist()) for row in found)
