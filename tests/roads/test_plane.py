"""Vehicles stay on the plane, at speeds within bounds, whatever the steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.model.errors import ConfigurationError
from mercury.roads.plane import Plane


def straight(x: float, y: float, heading: float, speed: float) -> Plane:
    return Plane(
        100.0,
        50.0,
        x_m=[x],
        y_m=[y],
        heading_deg=[heading],
        speed_mps=[speed],
        rng=np.random.default_rng(0),
        turn_deg=0.0,
        surge_mps=0.0,
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.floats(1.0, 1e5),
    height=st.floats(1.0, 1e5),
    steps=st.lists(st.floats(0.0, 3600.0), max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_nobody_leaves_and_speeds_stay_within_bounds(
    seed: int, width: float, height: float, steps: list[float]
) -> None:
    plane = Plane.scatter(
        20, width, height, np.random.default_rng(seed), slowest_mps=2.0, fastest_mps=30.0
    )
    for dt_s in steps:
        plane.step(dt_s)
        assert ((plane.x_m >= 0.0) & (plane.x_m <= width)).all()
        assert ((plane.y_m >= 0.0) & (plane.y_m <= height)).all()
        assert ((plane.speed_mps >= 2.0) & (plane.speed_mps <= 30.0)).all()
        assert ((plane.heading_deg >= 0.0) & (plane.heading_deg < 360.0)).all()
        assert len(plane) == 20


@given(
    x=st.floats(0.0, 100.0),
    y=st.floats(0.0, 50.0),
    heading=st.floats(0.0, 359.0),
    speed=st.floats(0.0, 50.0),
    dt_s=st.floats(0.0, 60.0),
)
@settings(max_examples=200, deadline=None)
def test_turning_back_is_a_reflection(
    x: float, y: float, heading: float, speed: float, dt_s: float
) -> None:
    plane = straight(x, y, heading, speed)
    plane.step(dt_s)
    # The slow and obvious way: go a metre at a time and turn round at a border.
    way = speed * dt_s
    pieces = max(math.ceil(way), 1)
    dx = math.sin(math.radians(heading)) * way / pieces
    dy = math.cos(math.radians(heading)) * way / pieces
    for _ in range(pieces):
        x, y = x + dx, y + dy
        if not 0.0 <= x <= 100.0:
            x, dx = (-x if x < 0.0 else 200.0 - x), -dx
        if not 0.0 <= y <= 50.0:
            y, dy = (-y if y < 0.0 else 100.0 - y), -dy
    assert plane.x_m[0] == pytest.approx(x, abs=1e-6)
    assert plane.y_m[0] == pytest.approx(y, abs=1e-6)
    if way > 1.0 and 1e-6 < x < 100.0 - 1e-6 and 1e-6 < y < 50.0 - 1e-6:
        after = math.radians(float(plane.heading_deg[0]))
        assert math.sin(after) == pytest.approx(dx * pieces / way, abs=1e-6)
        assert math.cos(after) == pytest.approx(dy * pieces / way, abs=1e-6)


def test_heading_is_clockwise_from_north() -> None:
    east = straight(10.0, 10.0, 90.0, 5.0)
    east.step(2.0)
    assert (east.x_m[0], east.y_m[0]) == pytest.approx((20.0, 10.0))
    north = straight(10.0, 10.0, 0.0, 5.0)
    north.step(2.0)
    assert (north.x_m[0], north.y_m[0]) == pytest.approx((10.0, 20.0))


@pytest.mark.parametrize("heading", [-1e-15, 360.0, 720.0])
def test_north_is_0_and_never_360(heading: float) -> None:
    assert straight(10.0, 10.0, heading, 5.0).heading_deg[0] == 0.0


def test_same_seed_same_traffic_and_it_wanders() -> None:
    planes = [Plane.scatter(50, 1000.0, 1000.0, np.random.default_rng(seed)) for seed in (7, 7, 8)]
    headings = planes[0].heading_deg.copy()
    for plane in planes:
        plane.step(1.0)
    assert np.array_equal(planes[0].x_m, planes[1].x_m)
    assert not np.array_equal(planes[0].x_m, planes[2].x_m)
    turned = np.abs(np.mod(planes[0].heading_deg - headings + 180.0, 360.0) - 180.0)
    assert 1.0 < np.median(turned) < 20.0  # mild


@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(0.1, 150.0))
@settings(max_examples=50, deadline=None)
def test_inside_circle_against_one_by_one(seed: int, radius: float) -> None:
    plane = Plane.scatter(30, 100.0, 100.0, np.random.default_rng(seed))
    expected = [
        number
        for number in range(30)
        if (plane.x_m[number] - 40.0) ** 2 + (plane.y_m[number] - 60.0) ** 2 <= radius**2
    ]
    assert plane.inside_circle(40.0, 60.0, radius).tolist() == expected


@pytest.mark.parametrize(
    ("x", "y", "speed", "sentence"),
    [
        (101.0, 10.0, 5.0, r"vehicle 1 at \(101, 10\) is outside the plane"),
        (math.nan, 10.0, 5.0, "outside the plane"),
        (10.0, -1.0, 5.0, "outside the plane"),
        (10.0, 10.0, 51.0, "speeds must be between 0 and 50 m/s"),
    ],
)
def test_what_cannot_be_is_refused(x: float, y: float, speed: float, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        straight(x, y, 0.0, speed)
