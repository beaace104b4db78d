"""Roads as arrays: nodes, directed edges between them, and the line that each edge follows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.geo import haversine_m
from mercury.geo.arrays import FloatArray
from mercury.model.area import Position
from mercury.model.errors import RoadsError

Numbers = NDArray[np.int64]

OSM_ENDINGS = (".osm.pbf", ".osm", ".osm.gz", ".osm.bz2")
SUMO_ENDINGS = (".net.xml", ".net.xml.gz")
CITY = "city"
CITY_SIZE_M = (40_000.0, 40_000.0)
CITY_ORIGIN = Position(40.7608, -111.8910)

_SHORTEST_M = 0.01  # two nodes at one place would make an edge without a direction


@dataclass(frozen=True, slots=True, eq=False)
class RoadNetwork:
    """Roads of which every node can be reached from every other.

    Edges are sorted by the node they leave: those of node n are `first_edge[n]` up to
    `first_edge[n + 1]`. The line of edge e is the points `first_point[e]` up to
    `first_point[e + 1]`, both ends included. Longitudes are continuous, so that near the
    antimeridian some are beyond 180.
    """

    node_lat: FloatArray
    node_lon: FloatArray
    edge_from: Numbers
    edge_to: Numbers
    edge_length_m: FloatArray
    edge_speed_mps: FloatArray
    first_edge: Numbers
    first_point: Numbers
    point_lat: FloatArray
    point_lon: FloatArray
    point_along_m: FloatArray  # from the beginning of its edge

    @property
    def nodes(self) -> int:
        return len(self.node_lat)

    @property
    def edges(self) -> int:
        """How many there are; a street of both directions is two."""
        return len(self.edge_from)

    @property
    def edge_time_s(self) -> FloatArray:
        return self.edge_length_m / self.edge_speed_mps


def build(
    node_lat: ArrayLike,
    node_lon: ArrayLike,
    edge_from: ArrayLike,
    edge_to: ArrayLike,
    edge_speed_mps: ArrayLike,
    first_point: ArrayLike,
    point_lat: ArrayLike,
    point_lon: ArrayLike,
) -> RoadNetwork:
    """The largest part of some roads in which every node can be reached from every other."""
    lats, lons = np.asarray(node_lat, np.float64), np.asarray(node_lon, np.float64)
    sources, targets = np.asarray(edge_from, np.int64), np.asarray(edge_to, np.int64)
    speeds = np.asarray(edge_speed_mps, np.float64)
    firsts = np.asarray(first_point, np.int64)
    line_lats, line_lons = np.asarray(point_lat, np.float64), np.asarray(point_lon, np.float64)
    if not len(sources):
        raise RoadsError("there is no road to drive on")
    lons, line_lons = _continuous(lons, lons[0]), _continuous(line_lons, lons[0])
    along = _along(firsts, line_lats, line_lons)
    lengths = along[firsts[1:] - 1]

    good = (sources != targets) & (lengths >= _SHORTEST_M) & (speeds > 0.0) & np.isfinite(speeds)
    inside = _largest_part(len(lats), sources[good], targets[good])
    good &= inside[sources] & inside[targets]
    if not good.any():
        raise RoadsError("no two places of these roads can be reached from one another")

    kept = np.flatnonzero(good)
    kept = kept[np.argsort(sources[kept], kind="stable")]
    number = np.cumsum(inside) - 1
    counts = firsts[kept + 1] - firsts[kept]
    points = ranges(firsts[kept], counts, np.ones_like(counts))
    return RoadNetwork(
        node_lat=lats[inside],
        node_lon=lons[inside],
        edge_from=number[sources[kept]],
        edge_to=number[targets[kept]],
        edge_length_m=lengths[kept],
        edge_speed_mps=speeds[kept],
        first_edge=np.searchsorted(number[sources[kept]], np.arange(int(inside.sum()) + 1)),
        first_point=firsts_of(counts),
        point_lat=line_lats[points],
        point_lon=line_lons[points],
        point_along_m=along[points],
    )


def open_roads(
    source: str,
    *,
    seed: int = 1,
    size_m: tuple[float, float] = CITY_SIZE_M,
    origin: Position = CITY_ORIGIN,
) -> RoadNetwork:
    """Roads of `city`, or of a file; seed, size and origin are those of the city."""
    try:
        if source == CITY:
            from mercury.roads.city import generate

            return generate(seed, size_m, origin)
        return _read(source)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("osmium", "scipy"):
            raise
        raise RoadsError(
            f"roads need the package {error.name}: pip install 'mercury-messaging[load]'"
        ) from None


def _read(source: str) -> RoadNetwork:
    path = Path(source)
    if not path.is_file():
        raise RoadsError(f"there is no file {source}; roads are {CITY} or a file")
    name = path.name.lower()
    try:
        if name.endswith(SUMO_ENDINGS):
            from mercury.roads.sumo import read_network

            return read_network(path)
        if name.endswith(OSM_ENDINGS):
            from mercury.roads.osm import read_extract

            return read_extract(path)
    except RoadsError as error:
        raise RoadsError(f"no roads in {source}: {error}") from None
    endings = ", ".join(OSM_ENDINGS + SUMO_ENDINGS)
    raise RoadsError(f"the ending of {path.name} tells no roads; known are {endings}")


def _continuous(lons: FloatArray, middle: float) -> FloatArray:
    return middle + (lons - middle + 180.0) % 360.0 - 180.0


def _along(firsts: Numbers, lats: FloatArray, lons: FloatArray) -> FloatArray:
    """How far each point is from the beginning of its line."""
    steps = np.zeros(len(lats))
    steps[1:] = haversine_m(lats[:-1], lons[:-1], lats[1:], lons[1:])
    steps[firsts[:-1]] = 0.0
    total = np.cumsum(steps)
    return total - np.repeat(total[firsts[:-1]], np.diff(firsts))


def _largest_part(nodes: int, sources: Numbers, targets: Numbers) -> NDArray[np.bool_]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(nodes, nodes))
    _, part = connected_components(graph.tocsr(), directed=True, connection="strong")
    inside: NDArray[np.bool_] = part == np.bincount(part).argmax()
    return inside


def firsts_of(counts: ArrayLike) -> Numbers:
    """Where each of several ranges begins, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def ranges(begins: Numbers, counts: Numbers, steps: Numbers) -> Numbers:
    """All numbers of several ranges, one range after the other, up or down."""
    within = np.arange(int(counts.sum())) - np.repeat(firsts_of(counts)[:-1], counts)
    return np.asarray(np.repeat(begins, counts) + np.repeat(steps, counts) * within, np.int64)
