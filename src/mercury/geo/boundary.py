"""The edge of a shape as curves that can be followed as closely as needed.

A boundary is a number of smooth arcs; a place on it is an arc's index and a fraction of the way
along. A corridor's boundary has arcs inside it too, where its segments meet: they belong to the
corridor, so for the question whether shapes touch they do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mercury.geo.arrays import FloatArray, IntArray
from mercury.geo.corridor import segments_of
from mercury.geo.distance import destination, destination_and_azimuth, haversine_m
from mercury.model.area import Circle, Corridor, Ellipse, Polygon, Position, Rectangle, Shape
from mercury.model.ring import unwrap_longitudes


@dataclass(frozen=True, slots=True)
class Boundary:
    """Arcs, and how to get the positions on them."""

    lengths_m: FloatArray  # of each arc, roughly
    least_steps: IntArray  # into how many steps each arc is cut at the least
    at: Callable[[IntArray, FloatArray], tuple[FloatArray, FloatArray]]

    def steps(self, points: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """All arcs cut into about so many steps of like length: arc, start and end of each."""
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
