"""The edge of a shape: as curves that are followed as closely as needed, and its reach.

A boundary is a number of smooth arcs; a place on it is an arc's index and a fraction of the way
along. A corridor's boundary has arcs inside it too, where its segments meet: they belong to the
corridor, so for the question whether shapes touch they do no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mercury.geo.arrays import FloatArray, IntArray
from mercury.geo.box import Box, box_of_circles
from mercury.geo.containment import contains_point, prepare
from mercury.geo.corridor import segments_of
from mercury.geo.distance import (
    SPHERE_ERROR,
    destination,
    destination_and_azimuth,
    geodesic_m,
    haversine_m,
)
from mercury.model.area import (
    HALF_MERIDIAN_M,
    Circle,
    Corridor,
    Ellipse,
    Polygon,
    Position,
    Rectangle,
    Shape,
)
from mercury.model.ring import unwrap_longitudes

_SAMPLES = 256


@dataclass(frozen=True, slots=True)
class Boundary:
    """Arcs, and how to get the positions on them."""

    lengths_m: FloatArray  # of each arc, roughly
    least_steps: IntArray  # into how many steps each arc is cut at the least
    at: Callable[[IntArray, FloatArray], tuple[FloatArray, FloatArray]]

    def steps(self, points: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """All arcs cut into about `points` steps of like length: arc, start and end of each."""
        share = np.ceil(points * self.lengths_m / max(float(self.lengths_m.sum()), 1e-9))
        counts = np.maximum(share.astype(np.intp), self.least_steps)
        arcs = np.repeat(np.arange(counts.size), counts)
        within = np.arange(arcs.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return arcs, within / counts[arcs], (within + 1) / counts[arcs]


@lru_cache(maxsize=256)
def boundary(shape: Shape) -> Boundary:
    """The edge of the shape, holes included."""
    match shape:
        case Circle():
            return _oval(shape.center, shape.radius_m, shape.radius_m, 0.0)
        case Ellipse():
            return _oval(shape.center, shape.semi_major_m, shape.semi_minor_m, shape.azimuth_deg)
        case Rectangle():
            return _straight_edges([rectangle_ring(shape)])
        case Polygon():
            rings = (shape.exterior, *shape.holes)
            return _straight_edges([polygon_ring(ring) for ring in rings])
        case Corridor():
            return _corridor(shape)


def rectangle_ring(shape: Rectangle) -> FloatArray:
    """Latitudes and unwrapped longitudes of the closed ring, counterclockwise."""
    east = shape.east + (360.0 if shape.west > shape.east else 0.0)
    south, west, north = shape.south, shape.west, shape.north
    return np.array([(south, west), (south, east), (north, east), (north, west), (south, west)])


def polygon_ring(ring: Sequence[Position]) -> FloatArray:
    """Latitudes and unwrapped longitudes of the closed ring; round a pole it ends a turn away."""
    xs, turns = unwrap_longitudes([p.lon for p in ring])
    return np.array(
        [*zip([p.lat for p in ring], xs, strict=True), (ring[0].lat, xs[0] + 360.0 * turns)]
    )


def _oval(
    center: Position, semi_major_m: float, semi_minor_m: float, azimuth_deg: float
) -> Boundary:
    def at(_arcs: IntArray, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        angle = 2.0 * np.pi * fractions
        along, across = semi_major_m * np.cos(angle), semi_minor_m * np.sin(angle)
        azimuths_deg = np.degrees(np.arctan2(across, along)) + azimuth_deg
        return destination(center.lat, center.lon, azimuths_deg, np.hypot(along, across))

    length_m = 2.0 * np.pi * float(np.hypot(semi_major_m, semi_minor_m)) / np.sqrt(2.0)
    return Boundary(np.array([length_m]), np.array([16]), at)


def _straight_edges(rings: Sequence[FloatArray]) -> Boundary:
    starts = np.concatenate([ring[:-1] for ring in rings])
    ends = np.concatenate([ring[1:] for ring in rings])

    def at(arcs: IntArray, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        start, end = starts[arcs], ends[arcs]
        # Weighting both ends keeps an edge along a parallel or meridian exactly on it.
        first, second = (1.0 - fractions)[:, None], fractions[:, None]
        points = np.where(start == end, start, start * first + end * second)
        lons = points[:, 1]
        turns = np.where(np.abs(lons) > 180.0, np.floor((lons + 180.0) / 360.0), 0.0)
        return points[:, 0], lons - 360.0 * turns

    middles = (starts + ends) / 2.0
    lengths_m = haversine_m(*starts.T, *middles.T) + haversine_m(*middles.T, *ends.T)
    # An edge over many degrees of longitude is curved, however short it may be near a pole.
    least_steps = np.ceil(np.abs(ends[:, 1] - starts[:, 1]) / 5.0).astype(np.intp)
    return Boundary(lengths_m, np.maximum(least_steps, 2), at)


def _corridor(shape: Corridor) -> Boundary:
    lats, lons, lengths_m, azimuths_deg = segments_of(shape)
    segments, half_width_m = lengths_m.size, shape.width_m / 2.0

    def at(arcs: IntArray, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        # First the right sides of all segments, then their left sides, then a circle about each
        # point of the line; a circle starts at its point and has no length before it.
        side = arcs < 2 * segments
        origin = np.where(side, arcs % segments, arcs - 2 * segments)
        segment = np.minimum(origin, segments - 1)
        foot_lats, foot_lons, forward_deg = destination_and_azimuth(
            lats[origin],
            lons[origin],
            azimuths_deg[segment],
            np.where(side, fractions * lengths_m[segment], 0.0),
        )
        turn_deg = np.where(side, np.where(arcs < segments, 90.0, -90.0), 360.0 * fractions)
        return destination(foot_lats, foot_lons, forward_deg + turn_deg, half_width_m)

    caps_m = np.full(lats.size, 2.0 * np.pi * half_width_m)
    return Boundary(
        np.concatenate([lengths_m, lengths_m, caps_m]),
        np.concatenate([np.full(2 * segments, 2), np.full(lats.size, 16)]),
        at,
    )


def bounds(shape: Shape) -> tuple[float, float, float, float]:
    """South, west, north and east of a box around the shape; `west > east` crosses ±180°.

    Exact for rectangles and polygons, never too small and a few percent too large for the others.
    """
    return _ellipse_box(shape) if isinstance(shape, Ellipse) else prepare(shape).box


@lru_cache(maxsize=1024)
def bounding_circle(shape: Shape) -> Circle:
    """A circle around the shape, never too small and as a rule a few percent too large."""
    match shape:
        case Circle():
            return shape
        case Ellipse():
            return Circle(shape.center, shape.semi_major_m)
    lats, lons, gap_m = _samples(boundary(shape))
    candidates = [
        _middle(lats, lons),
        box_middle(shape),
        Position(90.0, 0.0),
        Position(-90.0, 0.0),
    ]
    circles = [_circle_about(center, shape, lats, lons, gap_m) for center in candidates]
    return min(circles, key=lambda circle: circle.radius_m)


def _circle_about(
    center: Position, shape: Shape, lats: FloatArray, lons: FloatArray, gap_m: float
) -> Circle:
    opposite_lon = center.lon + (180.0 if center.lon <= 0.0 else -180.0)
    if contains_point(shape, -center.lat, opposite_lon):
        return Circle(center, HALF_MERIDIAN_M)
    # The farthest point is on the edge, at most half a gap away from a sample.
    farthest_m = float(np.max(geodesic_m(center.lat, center.lon, lats, lons)))
    return Circle(center, min(farthest_m + 0.55 * gap_m, HALF_MERIDIAN_M))


def _samples(edge: Boundary) -> tuple[FloatArray, FloatArray, float]:
    arcs, starts, ends = edge.steps(_SAMPLES)
    lats, lons = edge.at(arcs, starts)
    gaps_m = haversine_m(lats, lons, *edge.at(arcs, ends)) * (1.0 + SPHERE_ERROR)
    return lats, lons, float(np.max(gaps_m))


def _middle(lats: FloatArray, lons: FloatArray) -> Position:
    phi, lam = np.radians(lats), np.radians(lons)
    points = np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
    x, y, z = points.mean(axis=1).tolist()
    lat, lon = math.atan2(z, math.hypot(x, y)), math.atan2(y, x)
    return Position(math.degrees(lat), math.degrees(lon))


def box_middle(shape: Shape) -> Position:
    """The middle of a box around the shape."""
    box = prepare(shape).box
    lon = box.west + box.width_deg / 2.0
    return Position((box.south + box.north) / 2.0, lon - 360.0 if lon > 180.0 else lon)


@lru_cache(maxsize=256)
def _ellipse_box(shape: Ellipse) -> Box:
    lats, lons, gap_m = _samples(boundary(shape))
    box = box_of_circles(lats, lons, np.full(lats.size, 0.55 * gap_m))
    around = prepare(shape).box  # of the circle over the major axis
    # What goes round the ellipse also goes round the poles in it.
    north = 90.0 if contains_point(shape, 90.0, 0.0) else min(box.north, around.north)
    south = -90.0 if contains_point(shape, -90.0, 0.0) else max(box.south, around.south)
    if north == 90.0 or south == -90.0:
        return Box(south, -180.0, north, 180.0)
    return Box(south, box.west, north, box.east)
