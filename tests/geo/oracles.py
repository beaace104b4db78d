"""Slow and obvious answers to compare the kernels with, one point at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from geographiclib.geodesic import Geodesic  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray

from mercury.geo.grid import SECTOR_DEG, SECTORS
from mercury.model.area import Circle, Corridor, Ellipse, Polygon, Position, Rectangle, Shape

WGS84 = Geodesic.WGS84


def distance_m(a: Position, b: Position) -> float:
    return float(WGS84.Inverse(a.lat, a.lon, b.lat, b.lon)["s12"])


def reach(a: Position, azimuth_deg: float, length_m: float) -> Position:
    there = WGS84.Direct(a.lat, a.lon, azimuth_deg, length_m)
    return Position(there["lat2"], there["lon2"])


def ellipse_size(shape: Ellipse, p: Position) -> float:
    """1 on the ellipse's edge, less within."""
    line = WGS84.Inverse(shape.center.lat, shape.center.lon, p.lat, p.lon)
    angle = math.radians(line["azi1"] - shape.azimuth_deg)
    return math.hypot(
        line["s12"] * math.cos(angle) / shape.semi_major_m,
        line["s12"] * math.sin(angle) / shape.semi_minor_m,
    )


def distance_to_line_m(line: Sequence[Position], p: Position) -> float:
    return min(_distance_to_segment_m(a, b, p) for a, b in pairwise(line))


def _distance_to_segment_m(a: Position, b: Position, p: Position) -> float:
    """Coarse scan, then golden section search about the best place of the scan."""
    segment = WGS84.InverseLine(a.lat, a.lon, b.lat, b.lon)

    def at(s: float) -> float:
        q = segment.Position(s)
        return float(WGS84.Inverse(q["lat2"], q["lon2"], p.lat, p.lon)["s12"])

    step = segment.s13 / 16
    best = min(range(17), key=lambda i: at(i * step))
    low, high = max(best - 1, 0) * step, min(best + 1, 16) * step
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = at(left), at(right)
    while high - low > 1e-3:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = at(right)
    return min(at_left, at_right, at(low), at(high))


def ring_contains(ring: Sequence[Position], p: Position) -> bool:
    """Ray casting to the south, where every edge goes the shorter way round.

    Counts the edges below the point, edge by edge and without unwrapping the ring: only each
    edge's own two ends are brought within half a turn of one another and of the point. A ring
    round a pole is crossed once more or less than an ordinary one, so for the south pole's the
    count is the other way round.
    """
    crossings = 0
    turn = 0.0
    for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
        step = b.lon - a.lon
        step -= 360.0 if step > 180.0 else 0.0
        step += 360.0 if step < -180.0 else 0.0
        turn += step
        for shift in (-360.0, 0.0, 360.0):
            x1, x2, x = a.lon, a.lon + step, p.lon + shift
            if (x1 <= x) != (x2 <= x):
                lat = a.lat + (b.lat - a.lat) * (x - x1) / (x2 - x1)
                crossings += lat < p.lat
    odd = crossings % 2 == 1
    if abs(turn) > 180.0 and sum(q.lat for q in ring) < 0.0:
        return not odd
    return odd


def distance_to_ring_deg(ring: Sequence[Position], p: Position) -> float:
    """How far the point is from the nearest edge, in degrees as if on a plane."""
    nearest = math.inf
    for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
        dx, dy = math.remainder(b.lon - a.lon, 360.0), b.lat - a.lat
        for shift in (-360.0, 0.0, 360.0):
            x, y = p.lon + shift - a.lon, p.lat - a.lat
            part = (x * dx + y * dy) / max(dx * dx + dy * dy, 1e-30)
            part = min(max(part, 0.0), 1.0)
            nearest = min(nearest, math.hypot(x - part * dx, y - part * dy))
    return nearest


def polygon_contains(shape: Polygon, p: Position) -> bool:
    return ring_contains(shape.exterior, p) and not any(ring_contains(h, p) for h in shape.holes)


def rectangle_contains(shape: Rectangle, p: Position) -> bool:
    width = (shape.east - shape.west) % 360.0 or 360.0
    return shape.south <= p.lat <= shape.north and (p.lon - shape.west) % 360.0 <= width


def shape_contains(shape: Shape, p: Position) -> bool:
    """For points that are not on the very edge."""
    match shape:
        case Circle():
            return distance_m(shape.center, p) <= shape.radius_m
        case Ellipse():
            return ellipse_size(shape, p) <= 1.0
        case Rectangle():
            return rectangle_contains(shape, p)
        case Polygon():
            return polygon_contains(shape, p)
        case Corridor():
            return distance_to_line_m(shape.line, p) <= shape.width_m / 2.0


def sector_of(headings_deg: ArrayLike) -> NDArray[np.int64]:
    """The eighth of the compass of each heading: 0 is north, 2 east."""
    headings = np.asarray(headings_deg, dtype=np.float64)
    return np.floor((headings + SECTOR_DEG / 2.0) / SECTOR_DEG).astype(np.int64) % SECTORS
