"""Lanes: a publication's is among those of every scope that may reach it."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mercury.matcher.shared.routing import LANES, Routing, reach_of, topic_number
from mercury.matching import MatchingRules
from mercury.model.matching import NearSubscription
from mercury.wire.match_frames import to_e7

TAXI = np.array([topic_number("taxi")], np.uint64)


def lane_of(routing: Routing, lat: float, lon: float, key: int) -> int:
    keys = np.array([key], np.uint64)
    return int(routing.lanes_of(to_e7([lat]), to_e7([lon]), TAXI, keys)[0])


def lanes_touched(routing: Routing, lat: float, lon: float, reach_m: float) -> int:
    return int(routing.lanes_touched([lat], [lon], [reach_m], TAXI)[0])


@given(
    st.floats(-90.0, 90.0),
    st.floats(-180.0, 180.0),
    st.floats(1.0, 60_000.0),
    st.floats(0.0, 360.0),
    st.floats(0.0, 1.0),
    st.integers(0, 2**64 - 1),
    st.integers(1, 4),
)
def test_whoever_is_in_reach_is_in_a_lane_that_is_touched(
    lat: float, lon: float, reach_m: float, course: float, share: float, key: int, parts: int
) -> None:
    routing = Routing(4000.0)
    angle, flush = share * reach_m / 6_371_008.8, math.radians(course)
    north = math.asin(
        min(
            max(
                math.sin(math.radians(lat)) * math.cos(angle)
                + math.cos(math.radians(lat)) * math.sin(angle) * math.cos(flush),
                -1.0,
            ),
            1.0,
        )
    )
    east = math.radians(lon) + math.atan2(
        math.sin(flush) * math.sin(angle) * math.cos(math.radians(lat)),
        math.cos(angle) - math.sin(math.radians(lat)) * math.sin(north),
    )
    there = math.degrees(north), (math.degrees(east) + 540.0) % 360.0 - 180.0
    place = int(routing.places_of(to_e7([there[0]]), to_e7([there[1]]), TAXI)[0])
    routing.split(place, parts)
    lane = lane_of(routing, *there, key)
    assert lanes_touched(routing, lat, lon, reach_m) >> lane & 1


def test_a_narrow_scope_touches_few_lanes_and_topics_have_their_own() -> None:
    routing = Routing(4000.0)
    assert lanes_touched(routing, 47.0, 8.0, 100.0).bit_count() <= 4
    other = np.array([topic_number("bus")], np.uint64)
    lats, lons = np.linspace(40.0, 50.0, 500), np.linspace(0.0, 10.0, 500)
    keys = np.zeros(500, np.uint64)
    both = [
        routing.lanes_of(to_e7(lats), to_e7(lons), np.repeat(topic, 500), keys)
        for topic in (TAXI, other)
    ]
    assert np.count_nonzero(both[0] == both[1]) < 2 * 500 / LANES
    assert len(np.unique(both[0])) == LANES


def test_a_place_that_is_split_is_spread_over_lanes() -> None:
    routing = Routing(4000.0)
    place = int(routing.places_of(to_e7([47.0]), to_e7([8.0]), TAXI)[0])
    assert routing.split(place, 4)
    assert not routing.split(place, 2)
    keys = np.arange(1000, dtype=np.uint64)
    lanes = routing.lanes_of(
        np.repeat(to_e7([47.0]), 1000), np.repeat(to_e7([8.0]), 1000), np.repeat(TAXI, 1000), keys
    )
    assert 2 <= len(np.unique(lanes)) <= 4


def test_reach_holds_whatever_the_accuracy() -> None:
    rules = MatchingRules(hysteresis_m=10.0)
    _, reach_m = reach_of(NearSubscription("s", "taxi", 500.0), rules)
    assert reach_m >= 1000.0  # positions that may be wrong keep a pair as far as it is wide
    _, reach_m = reach_of(NearSubscription("s", "taxi", 500.0, hysteresis_m=900.0), rules)
    assert reach_m >= 1400.0
