"""Where entities are at a time: arrays in, arrays out."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mercury.geo.arrays import FloatArray
from mercury.geo.distance import DEGREE_M
from mercury.geo.machine_code import compiled
from mercury.model.errors import RoadsError
from mercury.roads.network import Numbers, RoadNetwork
from mercury.roads.trips import Records, Trips

_STEPS = 8  # edges that an entity is followed over before its trip is searched

# Positions are bound by memory latency, so fields that are read together are adjacent.
_ENTITY = np.dtype(
    [
        ("phase_s", np.float64),
        ("period_s", np.float64),
        ("first_row", np.int64),
        ("last_row", np.int64),
        ("row", np.int64),  # where it was when last asked for, and probably is still near
    ]
)
_EDGE = np.dtype(
    [
        ("time_s", np.float64),
        ("speed_mps", np.float64),
        ("first_point", np.int32),
        ("last_point", np.int32),
    ]
)
_POINT = np.dtype([("lat", np.float64), ("lon", np.float64), ("along_m", np.float64)])


class Motion(NamedTuple):
    """How entities move, and on which edges; without the noise of their positions."""

    heading_deg: FloatArray
    speed_mps: FloatArray
    edge: Numbers


class Movement:
    """Entities on their round trips.

    Positions have Gaussian noise, as those of receivers do: `noise_m` is its standard deviation to
    the east and to the north. The noise follows from seed, entity and time, so that whoever asks
    for the same position gets the same one.
    """

    def __init__(
        self, roads: RoadNetwork, trips: Trips, *, noise_m: float = 5.0, seed: int = 1
    ) -> None:
        if not 0.0 <= noise_m <= 10_000.0:
            raise RoadsError(f"noise of {noise_m:g} m is not between 0 and 10 km")
        self.roads, self.trips, self.noise_m = roads, trips, noise_m
        self._seed = np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF)
        self._entities = np.zeros(len(trips.period_s), _ENTITY)
        self._entities["phase_s"], self._entities["period_s"] = trips.phase_s, trips.period_s
        self._entities["first_row"] = self._entities["row"] = trips.first_row[:-1]
        self._entities["last_row"] = trips.first_row[1:] - 1
        self._edges = np.zeros(roads.edges, _EDGE)
        self._edges["time_s"], self._edges["speed_mps"] = roads.edge_time_s, roads.edge_speed_mps
        self._edges["first_point"] = roads.first_point[:-1]
        self._edges["last_point"] = roads.first_point[1:] - 1
        self._points = np.zeros(len(roads.point_lat), _POINT)
        self._points["lat"], self._points["lon"] = roads.point_lat, roads.point_lon
        self._points["along_m"] = roads.point_along_m

    def positions(self, entities: ArrayLike, times_s: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of some entities, each at its time; one time may serve all."""
        rows, times = _arguments(entities, times_s)
        lats, lons = np.empty(len(rows)), np.empty(len(rows))
        _locate(
            rows, times, self._entities, self.trips.rows, self._edges, self._points,
            self.noise_m, self._seed, lats, lons,
        )  # fmt: skip
        return lats, lons

    def motions(self, entities: ArrayLike, times_s: ArrayLike) -> Motion:
        """Headings, speeds and edges of some entities, each at its time."""
        rows, times = _arguments(entities, times_s)
        found = Motion(np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows), np.int64))
        _direct(rows, times, self._entities, self.trips.rows, self._edges, self._points, *found)
        return found


def _arguments(entities: ArrayLike, times_s: ArrayLike) -> tuple[Numbers, FloatArray]:
    rows = np.ascontiguousarray(entities, np.int64)
    times = np.broadcast_to(np.asarray(times_s, np.float64), rows.shape)
    return rows, np.ascontiguousarray(times)


@compiled
def _row_at(entity: Any, time_s: float, rows: Records) -> tuple[int, float]:
    """The row of an entity's trip at a time, and how long until its edge has been driven."""
    into_s = time_s + entity.phase_s
    into_s -= math.floor(into_s / entity.period_s) * entity.period_s
    row, last = entity.row, entity.last_row
    limit = min(row + _STEPS, last)
    while row < limit and rows[row].end_s <= into_s:
        row += 1
    if (rows[row].end_s <= into_s and row < last) or (
        row > entity.first_row and rows[row - 1].end_s > into_s
    ):
        row = entity.first_row
        while row < last:
            middle = (row + last) // 2
            if rows[middle].end_s > into_s:
                last = middle
            else:
                row = middle + 1
    entity.row = row
    return row, max(rows[row].end_s - into_s, 0.0)


@compiled
def _point_at(edge: Any, left_s: float, points: Records) -> tuple[int, float]:
    """The point of an edge's line that is next, and the share driven of the way to it."""
    on_m = max(edge.time_s - left_s, 0.0) * edge.speed_mps
    point, last = edge.first_point + 1, edge.last_point
    while point < last and points[point].along_m < on_m:
        point += 1
    before_m, after_m = points[point - 1].along_m, points[point].along_m
    if after_m <= before_m:
        return point, 1.0
    return point, min((on_m - before_m) / (after_m - before_m), 1.0)


@compiled
def _mixed(value: np.uint64) -> np.uint64:
    """A number of 64 bits with all its bits stirred (the finaliser of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _locate(
    which: Numbers,
    times_s: FloatArray,
    entities: Records,
    rows: Records,
    edges: Records,
    points: Records,
    noise_m: float,
    seed: np.uint64,
    lats: FloatArray,
    lons: FloatArray,
) -> None:
    on_edge, left_s = np.empty(len(which), np.int32), np.empty(len(which))
    # In a loop of its own, so that the processor waits for the rows of many entities at once.
    for at in range(len(which)):
        row, left_s[at] = _row_at(entities[which[at]], times_s[at], rows)
        on_edge[at] = rows[row].edge
    for at in range(len(which)):
        number = which[at]
        point, share = _point_at(edges[on_edge[at]], left_s[at], points)
        before, after = points[point - 1], points[point]
        lat = before.lat + share * (after.lat - before.lat)
        lon = before.lon + share * (after.lon - before.lon)
        if noise_m > 0.0:
            # Box and Muller: two even numbers become two normal ones.
            time_us = np.uint64(np.int64(times_s[at] * 1e6))
            dice = _mixed(_mixed(seed ^ (np.uint64(number) << np.uint64(40))) ^ time_us)
            away = (np.float64(dice >> np.uint64(32)) + 1.0) / 4294967296.0
            angle = np.float64(dice & np.uint64(0xFFFFFFFF)) * (2.0 * math.pi / 4294967296.0)
            away_deg = noise_m / DEGREE_M * math.sqrt(-2.0 * math.log(away))
            lat = min(max(lat + away_deg * math.cos(angle), -90.0), 90.0)
            lon += away_deg * math.sin(angle) / max(math.cos(math.radians(lat)), 1e-6)
        if lon >= 180.0:
            lon -= 360.0
        elif lon < -180.0:
            lon += 360.0
        lats[at], lons[at] = lat, lon


@compiled
def _direct(
    which: Numbers,
    times_s: FloatArray,
    entities: Records,
    rows: Records,
    edges: Records,
    points: Records,
    headings: FloatArray,
    speeds: FloatArray,
    found: Numbers,
) -> None:
    for at in range(len(which)):
        row, left_s = _row_at(entities[which[at]], times_s[at], rows)
        edge = edges[rows[row].edge]
        point, _ = _point_at(edge, left_s, points)
        before, after = points[point - 1], points[point]
        east = (after.lon - before.lon) * math.cos(math.radians(after.lat))
        headings[at] = math.degrees(math.atan2(east, after.lat - before.lat)) % 360.0
        speeds[at] = edge.speed_mps
        found[at] = rows[row].edge
