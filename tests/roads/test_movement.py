"""Where entities are: on their roads, no faster than these allow, again and again."""

from __future__ import annotations

import bisect
import math

import numpy as np
import pytest
from roads.streets import square, tangle

from mercury.geo import haversine_m
from mercury.model.errors import RoadsError
from mercury.roads.movement import Movement
from mercury.roads.network import open_roads
from mercury.roads.trips import Trips, TripSettings, plan


def moving(roads, count: int = 40, seed: int = 1, noise_m: float = 0.0) -> Movement:  # type: ignore[no-untyped-def]
    trips = plan(roads, count, np.random.default_rng(seed), TripSettings(landmarks=10))
    return Movement(roads, trips, noise_m=noise_m, seed=seed)


def place_of(movement: Movement, entity: int, time_s: float) -> tuple[float, float]:
    """The same in plain Python: add up edge by edge, then point by point."""
    roads, trips = movement.roads, movement.trips
    edges = trips.rows["edge"][trips.first_row[entity] : trips.first_row[entity + 1]]
    ends = np.cumsum(roads.edge_time_s[edges])
    into_s = (trips.phase_s[entity] + time_s) % ends[-1]
    at = min(bisect.bisect_right(ends.tolist(), into_s), len(edges) - 1)
    edge = edges[at]
    on_m = (into_s - (ends[at] - roads.edge_time_s[edge])) * roads.edge_speed_mps[edge]
    points = slice(roads.first_point[edge], roads.first_point[edge + 1])
    along_m = roads.point_along_m[points]
    lat = float(np.interp(on_m, along_m, roads.point_lat[points]))
    lon = float(np.interp(on_m, along_m, roads.point_lon[points]))
    return lat, (lon + 180.0) % 360.0 - 180.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_positions_are_those_of_plain_python(seed: int) -> None:
    movement = moving(tangle(50, seed), seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(15):  # times jump forth and back: what was asked before must not matter
        time_s = float(rng.uniform(0.0, 20_000.0))
        lats, lons = movement.positions(np.arange(40), time_s)
        for entity in range(40):
            lat, lon = place_of(movement, entity, time_s)
            # Times into a trip are kept to half a millisecond, at 30 m/s.
            assert haversine_m(lats[entity], lons[entity], lat, lon) < 0.5


def test_nobody_is_faster_than_the_road_allows() -> None:
    roads = open_roads("city", size_m=(6_000.0, 6_000.0))
    movement = moving(roads, 500)
    everybody, step_s = np.arange(500), 0.5
    lats, lons = movement.positions(everybody, 0.0)
    before = movement.motions(everybody, 0.0)
    driven_m = np.zeros(500)
    for tick in range(1, 200):
        later_lats, later_lons = movement.positions(everybody, tick * step_s)
        after = movement.motions(everybody, tick * step_s)
        moved_m = haversine_m(lats, lons, later_lats, later_lons)
        same = before.edge == after.edge
        assert np.all(moved_m[same] <= before.speed_mps[same] * step_s + 0.05)
        assert np.all(moved_m <= roads.edge_speed_mps.max() * step_s + 0.05)
        lats, lons, before = later_lats, later_lons, after
        driven_m += moved_m
    assert driven_m.min() > 0.5 * 8.0 * 199 * step_s  # and nobody stands still


def test_round_trips_repeat() -> None:
    movement = moving(tangle(50, 1))
    everybody = np.arange(40)
    times_s = np.random.default_rng(1).uniform(0.0, 100.0, 40)
    first = movement.positions(everybody, times_s)
    again = movement.positions(everybody, times_s + 3 * movement.trips.period_s)
    assert np.max(haversine_m(*first, *again)) < 0.5
    half = movement.positions(everybody, times_s + 0.5 * movement.trips.period_s)
    assert np.median(haversine_m(*first, *half)) > 500.0


def test_noise_is_gaussian_and_follows_from_the_seed() -> None:
    roads = tangle(50, 1)
    exact, noisy, other = (moving(roads, 1, noise_m=n) for n in (0.0, 8.0, 8.0))
    times_s = np.arange(20_000) / 7.0
    nobody = np.zeros(20_000, np.int64)
    lats, lons = exact.positions(nobody, times_s)
    noisy_lats, noisy_lons = noisy.positions(nobody, times_s)
    north_m = (noisy_lats - lats) * 111_195.0
    east_m = (noisy_lons - lons) * 111_195.0 * np.cos(np.radians(lats))
    for off_m in (north_m, east_m):
        assert abs(off_m.mean()) < 0.25
        assert off_m.std() == pytest.approx(8.0, rel=0.03)
        assert np.mean(np.abs(off_m) < 8.0) == pytest.approx(0.683, abs=0.015)
    assert abs(np.corrcoef(north_m, east_m)[0, 1]) < 0.03
    assert abs(np.corrcoef(north_m[1:], north_m[:-1])[0, 1]) < 0.03
    assert np.array_equal(noisy.positions(nobody, times_s), other.positions(nobody, times_s))


def test_across_the_antimeridian() -> None:
    movement = moving(tangle(50, 2, lon=179.98), noise_m=5.0)
    times_s = np.linspace(0.0, 5_000.0, 500)
    lats, lons = movement.positions(np.full(500, 3), times_s)
    assert np.all((lons >= -180.0) & (lons < 180.0))
    assert lons.min() < -179.0
    assert lons.max() > 179.0
    step_m = haversine_m(lats[:-1], lons[:-1], lats[1:], lons[1:])
    assert step_m.max() < 30.0 * 10.1 + 50.0


def test_headings_point_along_the_street() -> None:
    roads = square()
    places = np.zeros((1, 2), np.int32)
    ends_s = np.cumsum(roads.edge_time_s)
    rows = np.zeros(4, [("end_s", "f4"), ("edge", "i4")])
    rows["end_s"], rows["edge"] = ends_s, np.arange(4)
    trips = Trips(np.array([0, 4]), rows, ends_s[-1:], np.zeros(1), places)
    movement = Movement(roads, trips, noise_m=0.0)
    motion = movement.motions([0, 0, 0, 0], [5.0, 15.0, 25.0, 40.0])
    assert motion.heading_deg == pytest.approx([0.0, 90.0, 180.0, 270.0], abs=0.01)
    assert motion.speed_mps == pytest.approx([10.0] * 4)
    assert motion.edge.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("noise_m", [-1.0, math.nan, 1e6])
def test_impossible_noise_is_refused(noise_m: float) -> None:
    with pytest.raises(RoadsError, match="noise"):
        moving(square(), 2, noise_m=noise_m)
