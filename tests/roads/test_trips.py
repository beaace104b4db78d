"""Round trips: legs are shortest by time, follow the streets, and lead home."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from roads.streets import seconds_between, square, tangle

from mercury.geo import haversine_m
from mercury.model.errors import RoadsError
from mercury.roads.network import RoadNetwork, open_roads
from mercury.roads.trips import Trips, TripSettings, plan

FAR_M = 50_000.0


def legs_of(trips: Trips, roads: RoadNetwork, trip: int) -> list[tuple[int, int, float]]:
    """Begin, end and time of each leg, found by walking along the edges of a trip."""
    rows = trips.rows[trips.first_row[trip] : trips.first_row[trip + 1]]
    places = [*trips.places[trip].tolist(), int(trips.places[trip, 0])]
    legs, at = [], 0
    edges = rows["edge"].tolist()
    for begin, end in itertools.pairwise(places):
        node, time_s = begin, 0.0
        best_s = seconds_between(roads, begin)[end]
        while time_s < best_s - 1e-6:
            assert roads.edge_from[edges[at]] == node, "a trip jumps"
            node = int(roads.edge_to[edges[at]])
            time_s += float(roads.edge_time_s[edges[at]])
            at += 1
        legs.append((node, end, time_s - best_s))
    assert at == len(edges)
    return legs


@pytest.mark.parametrize("places", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", [1, 2])
def test_legs_are_the_shortest_by_time(places: int, seed: int) -> None:
    roads = tangle(60, seed)
    settings = TripSettings(places, FAR_M, landmarks=7)
    trips = plan(roads, 25, np.random.default_rng(seed), settings)
    for trip in range(25):
        for arrived, wanted, longer_s in legs_of(trips, roads, trip):
            assert arrived == wanted
            assert abs(longer_s) < 1e-6


def test_one_way_streets_are_driven_one_way() -> None:
    roads = square()  # from 0 to 3 is a step against the arrow, and three along it
    trips = plan(roads, 50, np.random.default_rng(1), TripSettings(2, FAR_M))
    around_s = float(roads.edge_time_s.sum())
    assert trips.period_s == pytest.approx(np.full(50, around_s))
    edges = trips.rows["edge"].reshape(50, 4)
    assert np.all(roads.edge_to[edges] == roads.edge_from[np.roll(edges, -1, axis=1)])


def test_places_are_within_the_range_and_trips_differ() -> None:
    roads = open_roads("city", size_m=(10_000.0, 10_000.0))
    trips = plan(roads, 2_000, np.random.default_rng(1), TripSettings(4, 1_500.0, landmarks=40))
    lats, lons = roads.node_lat[trips.places], roads.node_lon[trips.places]
    away_m = haversine_m(lats[:, :1], lons[:, :1], lats, lons)
    assert away_m.max() <= 1_500.0 * 1.01
    assert np.median(away_m[:, 1:]) > 500.0
    assert len(np.unique(trips.places, axis=0)) > 1_990
    assert np.all(trips.period_s > 0.0)
    assert np.all((trips.phase_s >= 0.0) & (trips.phase_s < trips.period_s))


def test_where_nothing_is_in_range_the_next_crossing_is() -> None:
    trips = plan(square(), 20, np.random.default_rng(1), TripSettings(3, 1.0, landmarks=4))
    assert np.all(trips.period_s > 0.0)
    assert np.all(trips.places[:, 1] != trips.places[:, 0])


def test_the_same_dice_give_the_same_trips() -> None:
    roads = tangle(50, 3)
    one, same = (plan(roads, 30, np.random.default_rng(5), TripSettings()) for _ in range(2))
    assert np.array_equal(one.rows, same.rows)
    assert np.array_equal(one.phase_s, same.phase_s)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TripSettings(1),
        lambda: TripSettings(range_m=0.0),
        lambda: TripSettings(range_m=float("nan")),
        lambda: TripSettings(landmarks=0),
        lambda: plan(square(), 0, np.random.default_rng(1), TripSettings()),
    ],
)
def test_impossible_trips_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RoadsError):
        make()
