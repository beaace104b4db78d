"""Round trips: each entity drives through a few places, home again, and then the same once more.

What is shared, and what is not. Routing every leg of 200,000 trips by itself would take minutes,
so a few hundred places of the roads, the landmarks, are drawn first; the shortest ways from each
landmark to everywhere around, and from everywhere around to it, are computed once. A trip's
places are in turn a landmark, which others visit as well, and a place of its own, which is drawn
from all nodes in range. Every leg therefore begins or ends at a landmark and is the shortest way by
time, exactly. Two trips between the same landmarks have different places in between; trips that
begin at one landmark share some streets near it, more than in a real city.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.geo.distance import DEGREE_M
from mercury.geo.machine_code import compiled
from mercury.model.errors import RoadsError
from mercury.roads.network import Numbers, RoadNetwork, firsts_of
from mercury.roads.shortest_paths import Edges, ShortestWays

Records = NDArray[Any]  # structured; compiled code reads their fields as attributes

MAX_ENTITIES = 2_000_000
MAX_PLACES = 32

# When an edge has been driven, counted from the trip's begin, and which edge. Side by side, since
# whoever looks at the one wants the other.
ROW = np.dtype([("end_s", np.float32), ("edge", np.int32)])


@dataclass(frozen=True, slots=True)
class TripSettings:
    """What trips are like."""

    places: int = 4  # of a round trip, home included
    range_m: float = 5_000.0  # from home to every place, at most, in a straight line
    landmarks: int = 512  # at most; fewer where the roads have fewer nodes

    def __post_init__(self) -> None:
        if not 2 <= self.places <= MAX_PLACES:
            raise RoadsError(f"a round trip has 2 to {MAX_PLACES} places, not {self.places}")
        if not self.range_m > 0.0:
            raise RoadsError(f"a range of {self.range_m:g} m leads nowhere")
        if self.landmarks < 1:
            raise RoadsError("there must be a landmark for trips to begin at")


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """The edges of all round trips, one trip after the other.

    Trip i is the rows `first_row[i]` up to `first_row[i + 1]`, of `ROW`.
    """

    first_row: Numbers
    rows: Records
    period_s: FloatArray
    phase_s: FloatArray  # how far into its trip an entity is at time 0
    places: NDArray[np.int32]  # nodes, a row for each trip


def plan(
    roads: RoadNetwork, entities: int, rng: np.random.Generator, settings: TripSettings
) -> Trips:
    """A round trip for each entity."""
    if not 1 <= entities <= MAX_ENTITIES:
        raise RoadsError(f"there are 1 to {MAX_ENTITIES:,} entities, not {entities:,}")
    places, landmarks = _places(roads, entities, rng, settings)
    first_row, edge = _routes(roads, places, landmarks)
    rows = np.empty(len(edge), ROW)
    period_s = np.empty(entities)
    _sum_up(first_row, edge, roads.edge_time_s, rows, period_s)
    phase_s = rng.random(entities) * period_s
    return Trips(first_row, rows, period_s, phase_s, places)


def _places(
    roads: RoadNetwork, entities: int, rng: np.random.Generator, settings: TripSettings
) -> tuple[NDArray[np.int32], Numbers]:
    """The places of all trips, and the landmarks among all nodes."""
    from scipy.spatial import cKDTree

    middle = np.cos(np.radians(roads.node_lat.mean()))
    x, y = roads.node_lon * DEGREE_M * middle, roads.node_lat * DEGREE_M
    at = np.stack([x, y], axis=1)
    landmarks = rng.choice(roads.nodes, min(settings.landmarks, roads.nodes), replace=False)
    landmarks = np.sort(landmarks).astype(np.int64)
    homes = rng.integers(0, len(landmarks), entities)
    places = np.empty((entities, settings.places), np.int32)
    places[:, 0] = landmarks[homes]
    around = cKDTree(at).query_ball_point(at[landmarks], settings.range_m)
    landmarks_around = cKDTree(at[landmarks]).query_ball_point(at[landmarks], settings.range_m)
    order = np.argsort(homes, kind="stable")
    bounds = np.searchsorted(homes[order], np.arange(len(landmarks) + 1))
    for number, home in enumerate(landmarks):
        rows = order[bounds[number] : bounds[number + 1]]
        own = np.setdiff1d(np.array(around[number], np.int64), [home])
        if not len(own):  # all is farther than the range: go where the streets go
            own = roads.edge_to[roads.first_edge[home] : roads.first_edge[home + 1]]
        shared = landmarks[landmarks_around[number]]
        for place in range(1, settings.places):
            some = shared if place % 2 == 0 else own
            places[rows, place] = rng.choice(some, len(rows))
    return places, landmarks


def _routes(
    roads: RoadNetwork, places: NDArray[np.int32], landmarks: Numbers
) -> tuple[Numbers, Edges]:
    """Where each trip's edges begin, and all edges; the legs of one landmark after the other."""
    entities, count = places.shape
    begins, ends = places.ravel(), np.roll(places, -1, axis=1).ravel()
    # Legs leave a landmark at even places; at odd ones they go towards one. With an odd number of
    # places the last leg is from landmark to landmark.
    leaving = np.tile(np.arange(count) % 2 == 0, entities)
    root = np.where(leaving, begins, ends)
    other = np.where(leaving, ends, begins)
    group = np.searchsorted(landmarks, root) * 2 + ~leaving
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(2 * len(landmarks) + 1))
    ways = ShortestWays(roads)
    counts = np.zeros(entities * count, np.int64)
    parts: list[tuple[Numbers, Edges]] = []
    for number in range(2 * len(landmarks)):
        legs = order[bounds[number] : bounds[number + 1]]
        if not len(legs):
            continue
        towards = number % 2 == 1
        landmark, nodes = int(landmarks[number // 2]), other[legs].astype(np.int64)
        edges, counts[legs] = ways.ways(landmark, nodes, towards=towards)
        parts.append((legs, edges))
    starts = firsts_of(counts)
    edge = np.empty(int(starts[-1]), np.int32)
    while parts:
        legs, edges = parts.pop()
        _put(legs, starts, edges, edge)
    return starts[::count].copy(), edge


@compiled
def _put(legs: Numbers, starts: Numbers, edges: Edges, edge: Edges) -> None:
    at = 0
    for leg in legs:
        for row in range(starts[leg], starts[leg + 1]):
            edge[row] = edges[at]
            at += 1


@compiled
def _sum_up(
    first_row: Numbers, edge: Edges, time_s: FloatArray, rows: Records, period_s: FloatArray
) -> None:
    for trip in range(len(first_row) - 1):
        total = 0.0
        for row in range(first_row[trip], first_row[trip + 1]):
            total += time_s[edge[row]]
            rows[row].end_s = total
            rows[row].edge = edge[row]
        period_s[trip] = total
