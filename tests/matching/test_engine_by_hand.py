"""The engine in batches, asked once, put away and taken up again; and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mercury.geo import haversine_m
from mercury.matching import Engine, Events, MatchingRules
from mercury.matching import layout as at
from mercury.model.area import Polygon, Position
from mercury.model.errors import FilterError, MatchingError
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication

LAT, LON = 52.5, 13.4
NORTH = 1.0 / 111_195.0  # degrees in a metre
EAST = NORTH / np.cos(np.radians(LAT))


def crowd(count: int, *, side_m: float = 4_000.0, radius_m: float = 150.0, seed: int = 1) -> Crowd:
    return Crowd(count, side_m, radius_m, seed)


class Crowd:
    """As many publications as subscriptions, moving about in a square."""

    def __init__(self, count: int, side_m: float, radius_m: float, seed: int) -> None:
        self.dice = np.random.default_rng(seed)
        self.count, self.side_m = count, side_m
        self.places = self.dice.uniform(0.0, side_m, (2, 2 * count))
        self.entities = [
            Publication(f"p{i}", f"t{i % 3}", {"price": int(self.dice.integers(0, 100))})
            for i in range(count)
        ]
        self.subscriptions = [
            NearSubscription(
                f"s{i}", f"t{i % 3}", radius_m, where=f"price < {30 + i % 5 * 15}", inside=True
            )
            for i in range(count)
        ]

    def join(self, engine: Engine) -> np.ndarray:
        refs = [engine.publish(entity, 0) for entity in self.entities]
        refs += [engine.subscribe(subscription, 0) for subscription in self.subscriptions]
        return np.array(refs)

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        self.places += self.dice.normal(0.0, 30.0, self.places.shape)
        np.clip(self.places, 0.0, self.side_m, out=self.places)
        return LAT + self.places[0] * NORTH, LON + self.places[1] * NORTH


def rows(events: Events) -> list[tuple[int, ...]]:
    columns = (events.event_type, events.reason, events.publication, events.subscription)
    return sorted(zip(*(c.tolist() for c in (*columns, events.time_us)), strict=True))


def test_a_batch_says_what_single_updates_say() -> None:
    # Enough of them that every array of the engine has to grow in the middle of an update.
    people = crowd(3_000)
    whole, single = Engine(), Engine()
    refs, same = people.join(whole), people.join(single)
    assert (refs == same).all()
    for second in range(3):
        lats, lons = people.step()
        order = people.dice.permutation(len(refs))
        times = np.full(len(refs), second * 1_000_000)
        whole.move(refs[order], lats[order], lons[order], times, 3.0)
        for row in order.tolist():
            single.move(refs[row], lats[row], lons[row], second * 1_000_000, 3.0)
        for engine in (whole, single):
            engine.tick(second * 1_000_000)
        told = rows(whole.take())
        assert told == rows(single.take())
        assert len(told) > 1_000


def test_a_batch_in_which_the_same_few_drive_on_and_on_says_so_too() -> None:
    # What the kernel notes ahead of an update may be over when its turn comes: it has a new
    # reference position by then, with more skin.
    people = crowd(12, side_m=3_000.0, radius_m=100.0)
    whole, single = Engine(), Engine()
    refs = people.join(whole)
    people.join(single)
    heading = people.dice.uniform(0.0, 2.0 * np.pi, len(refs))
    moves, told = [], 0
    for tenth in range(4_000):
        people.places += 6.0 * np.array([np.sin(heading), np.cos(heading)])
        heading[((people.places < 0.0) | (people.places > people.side_m)).any(axis=0)] += 2.0
        lats, lons = LAT + people.places[0] * NORTH, LON + people.places[1] * NORTH
        for row in people.dice.permutation(len(refs)).tolist():
            moves.append((refs[row], lats[row], lons[row], tenth * 100_000))
    for first in range(0, len(moves), 1_000):
        columns = [np.array(column) for column in zip(*moves[first : first + 1_000], strict=True)]
        whole.move(*columns)
        for move in moves[first : first + 1_000]:
            single.move(*move)
        events = rows(whole.take())
        assert events == rows(single.take())
        told += len(events)
    assert told > 1_000


def test_asking_once_finds_what_a_subscription_would() -> None:
    people = crowd(500)
    engine = Engine()
    refs = people.join(engine)
    lats, lons = people.step()
    engine.move(refs, lats, lons, 1_000_000)
    before = engine.take()
    cheap = NearSubscription("ask", "t0", 1_200.0, where="price < 50")
    found = engine.near(cheap, LAT + 2_000 * NORTH, LON)
    distance = haversine_m(LAT + 2_000 * NORTH, LON, lats[:500], lons[:500])
    expected = [
        (distance[i], entity.id)
        for i, entity in enumerate(people.entities)
        if entity.topic == "t0" and entity.values["price"] < 50 and distance[i] <= 1_200.0
    ]
    assert len(expected) > 5
    assert [one.publication.id for one in found] == [name for _, name in sorted(expected)]
    assert found[0].distance_m == pytest.approx(sorted(expected)[0][0], rel=1e-6)
    assert found[0].time_us == 1_000_000
    assert len(engine.near(NearSubscription("ask", "t0", 9_000.0), LAT, LON, limit=7)) == 7
    box = Polygon(
        tuple(
            Position(LAT + y * NORTH, LON + x * NORTH)
            for y, x in ((0, 0), (0, 1_000), (1_000, 1_000), (1_000, 0))
        )
    )
    within = NearSubscription("ask", "t1", polygon=box)
    inside = {one.publication.id for one in engine.near(within)}
    x, y = people.places[1, :500], people.places[0, :500]
    assert inside == {f"p{i}" for i in range(1, 500, 3) if x[i] <= 1_000.0 and y[i] <= 1_000.0}
    assert not len(engine.take())  # nobody else noticed
    assert len(before)
    assert engine.near(NearSubscription("ask", "nothing-there", 10.0), LAT, LON) == []
    assert engine.statistics()["subscriptions"] == 500


def test_a_restored_engine_goes_on_as_if_nothing_had_been() -> None:
    people = crowd(800)
    engine = Engine()
    refs = people.join(engine)
    for second in range(3):
        engine.move(refs, *people.step(), second * 1_000_000)
    box = Polygon((Position(LAT, LON), Position(LAT, LON + 0.02), Position(LAT + 0.02, LON)))
    engine.subscribe(
        NearSubscription("box", "t2", polygon=box, dwell_s=2.0, ttl_s=500.0), 3_000_000
    )
    engine.withdraw(int(refs[5]), 3_000_000)
    engine.take()
    again = Engine.restore(engine.snapshot(), engine.rules)
    assert again.statistics() == {**engine.statistics(), "events": 0}
    assert again.publication(int(refs[7])) == engine.publication(int(refs[7]))
    for second in range(4, 8):
        lats, lons = people.step()
        for one in (engine, again):
            one.move(refs, lats, lons, second * 1_000_000)
            one.tick(second * 1_000_000)
            one.publish(replace(people.entities[second], values={"price": 99}), second * 1_000_000)
        ours, theirs = engine.take(), again.take()
        assert ours.publication.tolist() == theirs.publication.tolist()  # in the same order
        assert rows(ours) == rows(theirs)
        assert {EventType.DWELL, EventType.ENTER} & set(ours.event_type.tolist())
    assert engine.dropped["unknown"] == again.dropped["unknown"] > 0


def test_a_damaged_snapshot_is_refused() -> None:
    data = Engine().snapshot()
    for bad in (b"", data[:-1], data[:30] + b"x" + data[31:], b"nonsense" + data[8:]):
        with pytest.raises(MatchingError, match="snapshot"):
            Engine.restore(bad)


def test_cells_become_finer_where_it_is_crowded_and_nothing_else_changes() -> None:
    people = crowd(2_000, side_m=1_000.0, radius_m=12.0)
    fitting, fixed = Engine(), Engine()
    refs = people.join(fitting)
    people.join(fixed)
    for second in range(12):
        lats, lons = people.step()
        for engine in (fitting, fixed):
            engine.move(refs, lats, lons, second * 1_000_000)
        fitting.tick(0)
        assert rows(fitting.take()) == rows(fixed.take())
    assert (fitting.store.levels[:6] < fixed.store.levels[:6]).all()
    fitting.store.looks[:] = fixed.store.looks[:] = 0
    lats, lons = people.step()
    for engine in (fitting, fixed):
        engine.move(refs, lats, lons, 60_000_000)
    compared = []  # in a look around, of which those in finer cells need more
    for engine in (fitting, fixed):
        looks = engine.store.looks.reshape(-1, at.LOOKS).sum(axis=0)
        queries = looks[at.PUB_QUERIES] + looks[at.SUB_QUERIES]
        compared.append((looks[at.PUB_SCANNED] + looks[at.SUB_SCANNED]) / queries)
    assert compared[0] * 5 < compared[1]


def test_references_of_the_gone_move_nobody() -> None:
    engine = Engine()
    first = engine.publish(Publication("a", "t"), 0)
    engine.withdraw(first, 0)
    second = engine.publish(Publication("b", "t"), 0)
    assert second & 0xFFFFFFFF == first & 0xFFFFFFFF  # the same place
    engine.subscribe(NearSubscription("s", "t", 100.0), 0)
    engine.move([engine.find("subscription", "s"), first], [LAT, LAT], [LON, LON], [1, 1])
    assert not len(engine.take())
    engine.move([second, -7, 1 << 40], [LAT] * 3, [LON] * 3, [1] * 3)
    assert len(engine.take()) == 1
    assert engine.dropped == {"unknown": 3}


def test_positions_that_are_none_are_counted() -> None:
    engine = Engine()
    ref = engine.publish(Publication("a", "t"), 0)
    engine.move([ref] * 4, [np.nan, 91.0, LAT, LAT], [LON, LON, 181.0, np.inf], [1, 1, 1, 1])
    assert engine.dropped == {"no-position": 4}


def test_dwell_comes_once_and_in_time() -> None:
    engine = Engine(MatchingRules(ttl_s=100.0))
    ref = engine.publish(Publication("a", "t"), 0)
    engine.subscribe(NearSubscription("s", "t", 100.0, dwell_s=5.0), 0)
    engine.move([engine.find("subscription", "s"), ref], [LAT, LAT], [LON, LON], [10, 2_000_000])
    told = []
    for tenth in range(100):
        engine.tick(tenth * 100_000)
        events = engine.take()
        told += list(zip(events.event_type.tolist(), events.time_us.tolist(), strict=True))
    assert told == [(EventType.ENTER, 2_000_000), (EventType.DWELL, 7_000_000)]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Publication("a", "no topic!"), "topic"),
        (lambda: Publication("", "t"), "id"),
        (lambda: Publication("a", "t", radius_m=-1.0), "radius"),
        (lambda: Publication("a", "t", ttl_s=0.0), "ttl"),
        (lambda: NearSubscription("a", "t", radius_m=-5.0), "radius"),
        (lambda: NearSubscription("a", "t", radius_m=float("nan")), "radius"),
        (lambda: NearSubscription("a", "t", radius_m=10_000_000.0), "radius"),
        (lambda: NearSubscription("a", "t"), "scope"),
        (lambda: NearSubscription("a", "t", 5.0, dwell_s=-1.0), "dwell_s"),
        (
            lambda: NearSubscription(
                "a", "t", polygon=Polygon(tuple(Position(i / 10, i % 7) for i in range(600)))
            ),
            "scope",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: object, reason: str) -> None:
    with pytest.raises(MatchingError) as refusal:
        make()  # type: ignore[operator]
    assert refusal.value.reason == reason


def test_what_the_rules_do_not_allow_is_refused() -> None:
    engine = Engine(MatchingRules(topics=frozenset({"taxi"}), max_radius_m=1_000.0))
    engine.publish(Publication("a", "taxi"), 0)
    for wrong, reason in [
        (NearSubscription("s", "bus", 5.0), "topic"),
        (NearSubscription("s", "taxi", 1_500.0), "radius"),
    ]:
        with pytest.raises(MatchingError) as refusal:
            engine.subscribe(wrong, 0)
        assert refusal.value.reason == reason
    half = Polygon(tuple(Position(lat, lon) for lat, lon in ((0, 0), (0, 90), (60, 90), (60, 0))))
    with pytest.raises(MatchingError, match="wider"):
        engine.subscribe(NearSubscription("s", "taxi", polygon=half), 0)
    with pytest.raises(FilterError):
        NearSubscription("s", "taxi", 5.0, where="price <")
    ring = Polygon(tuple(Position(80.0, lon) for lon in (0.0, 100.0, -120.0)))
    with pytest.raises(MatchingError, match="pole"):
        engine.subscribe(NearSubscription("s", "taxi", polygon=ring), 0)
    assert engine.statistics()["subscriptions"] == 0
    assert engine.dropped == {}


def test_the_same_said_again_only_keeps_alive() -> None:
    engine = Engine(MatchingRules(ttl_s=10.0))
    corners = tuple(
        Position(LAT + y, LON + x) for y, x in ((-1e-3, -1e-3), (-1e-3, 1e-3), (1e-3, 0))
    )
    subscription = NearSubscription("s", "t", polygon=Polygon(corners))
    ref = engine.publish(Publication("a", "t", {"x": 1}, ttl_s=1000.0), 0)
    engine.move(ref, LAT, LON, 1)
    for second in range(2_000):
        engine.subscribe(subscription, second * 5_000_000)
        engine.publish(Publication("a", "t", {"x": 1}, ttl_s=1000.0), second * 5_000_000)
        engine.tick(second * 5_000_000)
    assert rows(engine.take()) == [
        (1, EventReason.CHANGED, ref, engine.find("subscription", "s"), 0)
    ]
    assert len(engine.store.edges) < 1_000


def test_polygons_that_are_redrawn_do_not_pile_up() -> None:
    engine = Engine()
    ref = engine.publish(Publication("a", "t", ttl_s=1000.0), 0)
    engine.move(ref, LAT, LON, 1)
    for turn in range(1_000):
        width = 1e-3 * (1 + turn % 7)
        corners = ((-width, -width), (-width, width), (width, width), (width, -width))
        box = Polygon(tuple(Position(LAT + y, LON + x) for y, x in corners))
        engine.subscribe(NearSubscription(f"s{turn % 5}", "t", polygon=box), turn)
    assert engine.statistics()["pairs"] == 5
    assert len(engine.store.edges) < 4 * 5 * 4 * 8


def test_a_wider_scope_that_comes_in_the_middle_of_a_batch_is_seen() -> None:
    # The kernel notes some updates ahead which cells each will look at: by then it is not there.
    engine = Engine()
    narrow = engine.subscribe(NearSubscription("narrow", "t", 50.0), 0)
    engine.move(narrow, LAT + 1.0, LON, 1)
    wide = engine.subscribe(NearSubscription("wide", "t", 500.0), 0)
    others = [engine.publish(Publication(f"p{i}", "t"), 0) for i in range(40)]
    border = 52.5  # between two rows of cells
    refs, lats = np.array(others), np.full(40, border - 0.5)
    refs[25], lats[25] = wide, border + 200 * NORTH
    lats[30] = border - 250 * NORTH
    engine.move(refs, lats, LON, 2)
    told = engine.take()
    assert told.publication.tolist() == [others[30]]
    assert told.subscription.tolist() == [wide]


def test_skin_that_comes_in_the_middle_of_a_batch_is_looked_into() -> None:
    engine = Engine()
    border = 52.5  # between two rows of cells
    far = engine.publish(Publication("far", "t"), 0)
    for second in range(10):  # somebody has more skin than anybody gets later
        engine.move(far, border + 1.0 + second * 10 * NORTH, LON, second)
    subscription = engine.subscribe(NearSubscription("beyond", "t", 50.0), 0)
    engine.move(subscription, border + 10 * NORTH, LON, 1)
    one = engine.publish(Publication("one", "t"), 0)
    engine.move(one, border - 60 * NORTH, LON, 1)
    refs = np.array([engine.publish(Publication(f"p{i}", "t"), 0) for i in range(40)])
    lats = np.full(40, border - 0.5)
    # It is known to move after the first, and noted ahead of the second before that.
    for row, metres in ((20, -55.0), (30, -52.0)):
        refs[row], lats[row] = one, border + metres * NORTH
    engine.move(refs, lats, LON, 2)
    slot = one & 0xFFFFFFFF
    assert engine.store.clocks[slot * at.CLOCKS + at.SKIN] > 256 * 15
    assert not len(engine.take())
    engine.move(one, border - 37 * NORTH, LON, 3)  # within its skin
    assert engine.take().subscription.tolist() == [subscription]


def test_who_gets_other_cells_has_no_more_skin_than_before() -> None:
    engine = Engine()
    one = engine.publish(Publication("one", "t"), 0)
    slot = one & 0xFFFFFFFF
    metres = 0.0
    for second in range(20):
        engine.move(one, LAT, LON + metres * EAST, second)
        metres += 6.0
    skin_m = float(engine.store.clocks[slot * at.CLOCKS + at.NEXT_SKIN]) / 256
    assert skin_m > 20.0
    metres += 10_000.0
    subscription = engine.subscribe(NearSubscription("ahead", "t", 50.0), 0)
    engine.move(subscription, LAT, LON + (metres + 1.5 * skin_m + 50.0) * EAST, 30)
    engine.move(
        one, LAT, LON + metres * EAST, 30
    )  # an reference position from where the subscription is out of reach
    engine.move(one, LAT, LON + (metres + 0.9 * skin_m) * EAST, 31)
    engine.store.levels[:2] += 1
    engine.store.rebuild_cells(0, 2)
    assert not len(engine.take())
    engine.move(one, LAT, LON + (metres + 1.7 * skin_m) * EAST, 32)
    assert engine.take().subscription.tolist() == [subscription]
