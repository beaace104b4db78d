"""What a shape looks like on a map, and how far it reaches."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mercury.geo.arrays import FloatArray
from mercury.geo.boundary import Boundary, boundary
from mercury.geo.box import Box, box_of_circles
from mercury.geo.containment import contains_point
from mercury.geo.corridor import cut_line
from mercury.geo.distance import (
    SPHERE_ERROR,
    destination,
    destination_and_azimuth,
    geodesic_inverse,
    geodesic_m,
    haversine_m,
)
from mercury.geo.prepared import prepare
from mercury.model.area import (
    HALF_MERIDIAN_M,
    Circle,
    Corridor,
    Ellipse,
    Polygon,
    Position,
    Shape,
)

_SAMPLES = 256


def outline(shape: Shape, points: int = 128) -> tuple[Position, ...]:
    """An open ring of about so many positions on the shape's outer edge, counterclockwise.

    Corners are always among them. Holes, also those that a looping corridor leaves, are not.
    """
    if isinstance(shape, Corridor):
        lats, lons = _corridor_outline(shape, points)
    else:
        solid = Polygon(shape.exterior) if isinstance(shape, Polygon) else shape
        edge = boundary(solid)
        arcs, starts, _ = edge.steps(points)
        # Ovals are followed clockwise, like azimuths.
        lats, lons = edge.at(arcs, starts)
        if isinstance(shape, Circle | Ellipse):
            lats, lons = lats[::-1], lons[::-1]
    return tuple(Position(lat, lon) for lat, lon in zip(lats.tolist(), lons.tolist(), strict=True))


def bounds(shape: Shape) -> tuple[float, float, float, float]:
    """South, west, north and east of a box around the shape; `west > east` crosses ±180°.

    Exact for rectangles and polygons, never too small and a few percent too large for the others.
    """
    if isinstance(shape, Ellipse):
        return _ellipse_box(shape)
    return prepare(shape).box


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
    x, y, z = (
        float(np.mean(v))
        for v in (np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi))
    )
    return Position(
        float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))
    )


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


def _corridor_outline(shape: Corridor, points: int) -> tuple[FloatArray, FloatArray]:
    """The outer ring of the union of all segments, joined in the plane of azimuth and distance."""
    import shapely  # with GEOS: not all who know of areas need it

    half_width_m = shape.width_m / 2.0
    middle = bounding_circle(shape).center
    length_m = max(sum(2.0 * cut_line(shape, HALF_MERIDIAN_M).half_lengths_m), 1e-3)
    pieces = cut_line(shape, max(length_m / max(points // 4, 1), half_width_m / 4.0))
    round_deg = np.linspace(-90.0, 90.0, max(points // 4, 8))
    capsules = []
    for lat, lon, azimuth_deg, half_m in zip(*(c.tolist() for c in pieces), strict=True):
        # Azimuths change along a geodesic: a round end looks the way its own end does.
        end_lats, end_lons, outward_deg = destination_and_azimuth(
            lat, lon, [azimuth_deg, azimuth_deg + 180.0], half_m
        )
        rim_lats, rim_lons = destination(
            end_lats[:, None], end_lons[:, None], outward_deg[:, None] + round_deg, half_width_m
        )
        rim_lats, rim_lons = rim_lats.ravel(), rim_lons.ravel()
        distance_m, direction_deg = geodesic_inverse(middle.lat, middle.lon, rim_lats, rim_lons)
        direction = np.radians(direction_deg)
        plane = np.column_stack([np.sin(direction), np.cos(direction)]) * distance_m[:, None]
        capsules.append(shapely.make_valid(shapely.Polygon(plane)))
    union = shapely.union_all(capsules)
    if not isinstance(union, shapely.Polygon):
        union = max(shapely.get_parts(union), key=lambda part: float(part.area))
    # Where the round ends of two pieces meet on one line, the union has crumbs.
    union = shapely.orient_polygons(shapely.simplify(union, half_width_m * 1e-3))
    ring = shapely.get_coordinates(union.exterior)[:-1]
    return destination(
        middle.lat,
        middle.lon,
        np.degrees(np.arctan2(ring[:, 0], ring[:, 1])),
        np.hypot(ring[:, 0], ring[:, 1]),
    )
