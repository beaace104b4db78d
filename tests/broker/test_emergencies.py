"""From an emergency to the area that must hear of it."""

from __future__ import annotations

import math

import pytest

from mercury.broker.emergencies import Emergencies
from mercury.config.settings import BrokerSettings
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
