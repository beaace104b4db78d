"""From an emergency to the area that must hear of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.broker.emergencies import Emergencies
from mercury.config.settings import BrokerSettings
from mercury.geo import haversine_m
from mercury.geo.arrays import FloatArray
from mercury.model.area import Position

SETTINGS = BrokerSettings(
    emergency_radius_m=500.0,
    emergency_horizon_s=20.0,
    emergency_max_radius_m=5000.0,
    merge_distance_m=200.0,
    merge_window_s=10.0,
)
HERE, METRES_150, METRES_300 = Position(40.0, 0.0), Position(40.00135, 0.0), Position(40.0027, 0.0)


@pytest.mark.parametrize(
    ("traffic_mps", "event_radius_m", "radius_m"),
    [
        (None, None, 500.0),
        (0.0, None, 500.0),
        (10.0, None, 500.0),
        (30.0, None, 600.0),
        (None, 800.0, 800.0),
        (50.0, 800.0, 1000.0),
        (500.0, None, 5000.0),
        (None, 1e9, 5000.0),
        (math.inf, None, 5000.0),
        (math.nan, math.nan, 500.0),
        (-5.0, -5.0, 500.0),
    ],
)
def test_the_radius_is_by_setting_by_traffic_and_by_the_events_own_size(
    traffic_mps: float | None, event_radius_m: float | None, radius_m: float
) -> None:
    assert Emergencies(SETTINGS).radius_for(traffic_mps, event_radius_m) == radius_m


def test_further_witnesses_of_one_emergency_are_no_new_one() -> None:
    emergencies = Emergencies(SETTINGS)
    assert emergencies.is_new(HERE, 0.0)
    assert not emergencies.is_new(HERE, 0.0)
    assert not emergencies.is_new(METRES_150, 9.9)


def test_another_place_or_a_later_time_is_a_new_one() -> None:
    emergencies = Emergencies(SETTINGS)
    assert emergencies.is_new(HERE, 0.0)
    assert emergencies.is_new(METRES_300, 1.0)
    assert not emergencies.is_new(METRES_150, 9.0)  # near both, and no new centre itself
    assert emergencies.is_new(HERE, 10.0)
    assert not emergencies.is_new(METRES_300, 10.5)


def test_witnesses_are_merged_across_the_antimeridian() -> None:
    emergencies = Emergencies(SETTINGS)
    assert emergencies.is_new(Position(10.0, 179.9995), 0.0)
    assert not emergencies.is_new(Position(10.0, -179.9995), 0.0)


def test_an_emergency_from_before_the_clock_was_set_back_hides_none() -> None:
    emergencies = Emergencies(SETTINGS)
    assert emergencies.is_new(HERE, 3700.0)
    assert emergencies.is_new(HERE, 100.0)
    assert not emergencies.is_new(HERE, 101.0)


class Plain:
    """The same, by looking at each one that is remembered."""

    def __init__(self) -> None:
        self._recent: list[tuple[float, Position]] = []

    def is_new(self, position: Position, now: float) -> bool:
        self._recent = [(at, fix) for at, fix in self._recent if abs(now - at) < 10.0]
        for _, fix in self._recent:
            if haversine_m(position.lat, position.lon, fix.lat, fix.lon) <= 200.0:
                return False
        self._recent.append((now, position))
        return True


# Around a pole and the antimeridian, close enough to be merged now and then.
lats = st.sampled_from([0.0, 40.0, 89.998, -90.0]).flatmap(
    lambda lat: st.floats(max(lat - 0.004, -90.0), min(lat + 0.004, 90.0))
)
lons = st.one_of(st.floats(179.996, 180.0), st.floats(-180.0, -179.996), st.floats(-180.0, 180.0))


@given(st.lists(st.tuples(lats, lons, st.sampled_from([0.0, 0.1, 5.0, 9.9, -4.0, -3600.0]))))
def test_emergencies_are_merged_as_by_comparing_each_with_all(
    reports: list[tuple[float, float, float]],
) -> None:
    emergencies, plain, now = Emergencies(SETTINGS), Plain(), 10_000.0
    for lat, lon, later_s in reports:
        now += later_s
        position = Position(lat, lon)
        assert emergencies.is_new(position, now) == plain.is_new(position, now)
        assert len(emergencies) == len(plain._recent)
        assert sum(map(len, emergencies._in_cell.values())) == len(emergencies)


def test_an_emergency_is_compared_with_the_few_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emergencies, compared = Emergencies(SETTINGS), 0

    def counted(*positions: float) -> FloatArray:
        nonlocal compared
        compared += 1
        return haversine_m(*positions)

    monkeypatch.setattr("mercury.broker.emergencies.haversine_m", counted)
    for number in range(10_000):  # ten seconds of a thousand a second
        row, column = divmod(number, 100)
        assert emergencies.is_new(Position(row * 0.003, column * 0.003), number / 1000)
    assert len(emergencies) == 10_000
    assert compared < 10_000 * 10
    assert not emergencies.is_new(Position(0.0, 0.003), 9.999)


def test_above_the_limit_the_oldest_is_alerted_again() -> None:
    emergencies = Emergencies(SETTINGS.model_copy(update={"max_recent_emergencies": 2}))
    places = [Position(40.0 + number, 0.0) for number in range(3)]
    for place in places:
        assert emergencies.is_new(place, 0.0)
    assert len(emergencies) == 2
    assert [emergencies.is_new(place, 1.0) for place in reversed(places)] == [False, False, True]
