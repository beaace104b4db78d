"""The engine and its brute-force twin agree, whatever moves, joins, leaves, changes and expires."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matching.twin import Notified, Twin

from mercury.matching import Engine, MatchingRules
from mercury.matching import layout as at
from mercury.model.area import Polygon, Position
from mercury.model.matching import NearSubscription, Publication

# Middles of worlds: an ordinary place, the corner of four cells, the antimeridian, near both poles.
MIDDLES = [(48.1, 11.5), (0.0, 0.0), (-17.0, 180.0), (89.99, 20.0), (-89.95, -100.0), (60, -180)]
SIDES = ["publication", "subscription"]
TOPICS = ["taxi", "taxi", "taxi", "bus"]
FILTERS = ["", "", "seats >= 2", 'brand == "A" or not seats exists', "seats > 1 and seats < 4"]
NAMES = ["a", "b", "c"]


def places(middle: tuple[float, float]) -> st.SearchStrategy[tuple[float, float]]:
    """Within a kilometre or so of the middle."""

    def beside(north: float, east: float) -> tuple[float, float]:
        lat = middle[0] + north
        lon = middle[1] + east / max(0.02, 1.0 - (abs(middle[0]) / 90.0) ** 2)
        lat = min(max(lat, -90.0), 90.0)
        return lat, (lon + 180.0) % 360.0 - 180.0

    steps = st.one_of(st.floats(-0.006, 0.006), st.sampled_from([-0.002, 0.0, 0.0005, 0.003]))
    return st.builds(beside, steps, steps)


@st.composite
def stories(draw: st.DrawFn) -> tuple[MatchingRules, list[tuple[Any, ...]]]:
    """What is done to an engine, step by step."""
    middle = draw(st.sampled_from(MIDDLES))
    place = places(middle)
    radius = st.sampled_from([5.0, 60.0, 300.0, 800.0])
    values = st.one_of(
        st.just({}),
        st.fixed_dictionaries({"seats": st.integers(0, 5), "brand": st.sampled_from("AB")}),
    )
    ttl = st.one_of(st.none(), st.just(3.0))
    publication = st.builds(
        Publication, st.sampled_from(NAMES), st.sampled_from(TOPICS), values, radius, ttl
    )
    circle = st.builds(
        NearSubscription,
        st.sampled_from(NAMES),
        st.sampled_from(TOPICS),
        radius_m=radius,
        where=st.sampled_from(FILTERS),
        inside=st.booleans(),
        dwell_s=st.one_of(st.none(), st.just(2.0)),
        hysteresis_m=st.one_of(st.none(), st.sampled_from([0.0, 100.0])),
        ttl_s=ttl,
    )

    def box(south: float, west: float, high: float, wide: float) -> Polygon:
        def east(lon: float) -> float:
            return (lon + 180.0) % 360.0 - 180.0

        return Polygon(
            (
                Position(south, east(west)),
                Position(south, east(west + wide)),
                Position(south + high, east(west + wide)),
                Position(south + high / 2, east(west)),
            )
        )

    edge = st.floats(0.001, 0.008)
    polygon = st.builds(
        NearSubscription,
        st.sampled_from(NAMES),
        st.sampled_from(TOPICS),
        polygon=st.builds(
            box,
            st.floats(middle[0] - 0.006, middle[0] + 0.001),
            st.floats(middle[1] - 0.01, middle[1] + 0.01),
            edge,
            edge,
        ),
        where=st.sampled_from(FILTERS),
        inside=st.booleans(),
    )
    sides = st.sampled_from(SIDES)
    subscription = st.one_of(circle, polygon) if abs(middle[0]) < 80.0 else circle
    accuracy = st.sampled_from([0.0, 0.0, 30.0, 2000.0])
    pause = st.sampled_from([0, 1, 400_000, 2_500_000, -300_000])
    step = st.one_of(
        st.tuples(st.just("publish"), publication),
        st.tuples(st.just("subscribe"), subscription),
        *[st.tuples(st.just("move"), sides, st.sampled_from(NAMES), place, accuracy)] * 8,
        st.tuples(st.just("withdraw"), sides, st.sampled_from(NAMES)),
        st.tuples(st.just("tick")),
        st.tuples(st.just("pause"), pause),
        st.tuples(st.just("wait"), pause),
    )
    rules = MatchingRules(overlap=draw(st.booleans()), hysteresis_m=20.0, ttl_s=6.0)
    # A world to begin with, for things to happen in.
    story: list[tuple[Any, ...]] = []
    for name in NAMES:
        story.append(("publish", replace(draw(publication), id=name)))
        story.append(("subscribe", replace(draw(subscription), id=name)))
        story += [("move", side, name, draw(place), 0.0) for side in SIDES]
    return rules, story + draw(st.lists(step, min_size=5, max_size=60))


def play(rules: MatchingRules, story: list[tuple[Any, ...]]) -> tuple[Engine, Twin]:
    """Tell both the same story, comparing what they say after each step."""
    engine, twin = Engine(rules), Twin(rules)
    time_us = 1_000_000
    for step in story:
        match step:
            case ("publish", publication):
                engine.publish(publication, time_us)
                twin.publish(publication, time_us)
            case ("subscribe", subscription):
                engine.subscribe(subscription, time_us)
                twin.subscribe(subscription, time_us)
            case ("move", side, name, (lat, lon), accuracy_m):
                reference = engine.find(side, name)
                engine.move(-1 if reference is None else reference, lat, lon, time_us, accuracy_m)
                twin.move(side, name, lat, lon, time_us, accuracy_m)
            case ("withdraw", side, name):
                reference = engine.find(side, name)
                if reference is not None:
                    engine.withdraw(reference, time_us)
                twin.withdraw(side, name, time_us)
            case ("tick",):
                engine.tick(time_us)
                twin.tick(time_us)
            case ("pause", wait_us):
                time_us += wait_us
            case ("wait", wait_us):
                time_us += wait_us
                engine.tick(time_us)
                twin.tick(time_us)
        if twin.close_calls:  # somebody stands on a border, where the last digit decides
            break
        compare(engine, twin)
    return engine, twin


def compare(engine: Engine, twin: Twin) -> None:
    said = spoken(engine)
    expected, twin.notified = sorted(twin.notified), []
    assert [one[:5] for one in said] == [one[:5] for one in expected]
    for ours, theirs in zip(said, expected, strict=True):
        assert ours.distance_m == pytest.approx(theirs.distance_m, rel=1e-5, abs=0.05)
    assert engine.dropped == twin.dropped
    assert engine.statistics()["pairs"] == len(twin.pairs)


def spoken(engine: Engine) -> list[Notified]:
    """What an engine notifies, by names."""
    events = engine.take()
    notified = []
    for row in range(len(events)):
        publication = engine.publication(int(events.publication[row]))
        subscription = engine.subscription(int(events.subscription[row]))
        assert publication is not None
        assert subscription is not None
        notified.append(
            Notified(
                *(
                    int(events.event_type[row]),
                    int(events.reason[row]),
                    subscription.id,
                    publication.id,
                ),
                *(int(events.time_us[row]), float(events.distance_m[row])),
            )
        )
    return sorted(notified)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_engine_and_twin_agree(story: tuple[MatchingRules, list[tuple[Any, ...]]]) -> None:
    play(*story)


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("drives", [False, True])
def test_many_moving_entities_agree_with_brute_force(
    middle: tuple[float, float], overlap: bool, drives: bool
) -> None:
    """Many, for long: borders are crossed, and crossed back, all the time.

    They jump a hundred metres in any direction, or drive fifteen metres straight on and come back
    at the world's end; who drives looks around rarely.
    """
    dice = random.Random(f"{middle} {overlap}")
    rules = MatchingRules(overlap=overlap, hysteresis_m=15.0, ttl_s=8.0)
    wide_deg = 0.006
    # Near a pole a degree of longitude is short.
    squeeze = max(math.cos(math.radians(abs(middle[0]) + wide_deg)), 0.001)
    names = [str(number) for number in range(14)]
    spots = {
        (side, name): [dice.uniform(-wide_deg, wide_deg) for _ in range(2)]
        for side in SIDES
        for name in names
    }
    headings = {mover: dice.uniform(0.0, 2.0 * math.pi) for mover in spots}
    story: list[tuple[Any, ...]] = []
    for _ in range(3000):
        roll = dice.random()
        side, name = dice.choice(list(spots))
        if roll < 0.05:
            values = dice.choice([{}, {"seats": dice.randrange(5), "brand": "A"}])
            scope_m = dice.choice([0.0, 40.0])
            story.append(("publish", Publication(name, dice.choice(TOPICS), values, scope_m)))
        elif roll < 0.11:
            polygon = abs(middle[0]) < 80.0 and dice.random() < 0.4
            corners = [
                Position(
                    middle[0] + 0.8 * wide_deg * dice.uniform(0.2, 1.0) * math.sin(angle),
                    turned(middle[1] + wide_deg * dice.random() * math.cos(angle) / squeeze),
                )
                for angle in (0.1, 1.3, 2.4, 3.5, 5.0)
            ]
            subscription = NearSubscription(
                *(name, dice.choice(TOPICS)),
                radius_m=None if polygon else dice.choice([30.0, 150.0, 400.0]),
                polygon=Polygon(tuple(corners)) if polygon else None,
                where=dice.choice(FILTERS),
                inside=dice.random() < 0.5,
                dwell_s=dice.choice([None, 1.5]),
                hysteresis_m=dice.choice([None, 0.0, 60.0]),
            )
            story.append(("subscribe", subscription))
        elif roll < 0.12:
            story.append(("withdraw", side, name))
        elif roll < 0.2:
            story.append(("wait", dice.choice([100_000, 400_000])))
        else:
            spot = spots[side, name]
            heading = headings[side, name]
            step = math.sin(heading), math.cos(heading)
            for axis in range(2):
                spot[axis] += 0.00014 * step[axis] if drives else dice.gauss(0.0, 0.0012)
                if abs(spot[axis]) > wide_deg:
                    spot[axis] = math.copysign(wide_deg, spot[axis])
                    headings[side, name] = dice.uniform(0.0, 2.0 * math.pi)
            lat = min(max(middle[0] + spot[0], -90.0), 90.0)
            lon = turned(middle[1] + spot[1] / squeeze)
            story.append(("move", side, name, (lat, lon), dice.choice([0.0, 0.0, 20.0, 500.0])))
    engine, _ = play(rules, story)
    assert engine.statistics()["events"] > (200 if drives else 300)
    if drives:
        looks = engine.store.looks.reshape(-1, at.LOOKS)
        looked = int(looks[:, [at.PUB_QUERIES, at.SUB_QUERIES]].sum())
        assert looked < 0.6 * engine.statistics()["updates"]


def turned(lon: float) -> float:
    """A longitude between −180° and 180°."""
    return (lon + 180.0) % 360.0 - 180.0
