"""Whether two areas have a point in common.

Adapters drop area messages that lie outside their coverage, so a miss must never happen, while a
false alarm costs only a little work. Quick tests settle most pairs. For the rest both edges are
followed in steps, in the plane of azimuth and distance about the smaller shape; a step's
neighbourhood certainly holds the true edge. Only steps that come close to the other shape's are cut
further, until a point of one shape is found in the other or no two steps are close any more.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from mercury.geo.arrays import BoolArray, FloatArray, GeometryArray, IntArray
from mercury.geo.containment import contains_point, prepare
from mercury.geo.distance import geodesic_inverse, geodesic_m
from mercury.geo.local_frame import EDGE_M
from mercury.geo.outline import Boundary, boundary, bounding_circle, box_middle
from mercury.model.area import Area, Circle, Corridor, Ellipse, Polygon, Position, Rectangle, Shape

_FIRST_STEPS = 64
_CUTS = 4  # parts a step is cut into
_ROUNDS = 12
_MOST_STEPS = 20_000
# Shapes that touch to within this part of the smaller one's size count as overlapping.
_TOUCHING = 1e-7
# About a center, directions lose their meaning near its antipode. Two shapes that both reach this
# far round the Earth are taken to overlap.
_FARTHEST_M = 15_000_000.0


def overlaps(a: Area | Shape, b: Area | Shape) -> bool:
    """Whether the areas have a place, and a time of validity, in common; touching counts.

    Heading sectors are not compared: a coverage has no heading, and vehicles going either way may
    be in it.
    """
    if isinstance(a, Area) and isinstance(b, Area) and not _share_time(a, b):
        return False
    if isinstance(a, Area):
        a = a.shape
    if isinstance(b, Area):
        b = b.shape
    # Boxes contain their shapes, so apart they settle it; a rectangle is its box.
    if not prepare(a).box.overlaps(prepare(b).box):
        return False
    if isinstance(a, Rectangle) and isinstance(b, Rectangle):
        return True
    around_a, around_b = bounding_circle(a), bounding_circle(b)
    here, there = around_a.center, around_b.center
    apart_m = geodesic_m(here.lat, here.lon, there.lat, there.lon)
    if apart_m > around_a.radius_m + around_b.radius_m + EDGE_M:
        return False
    if isinstance(a, Circle) and isinstance(b, Circle):
        return True
    some_a, some_b = _some_point(a), _some_point(b)
    if contains_point(a, some_b.lat, some_b.lon) or contains_point(b, some_a.lat, some_a.lon):
        return True
    if around_a.radius_m > around_b.radius_m:
        a, b, around_a = b, a, around_b
    return around_a.radius_m > _FARTHEST_M or _edges_meet(a, b, around_a)


def _share_time(a: Area, b: Area) -> bool:
    return all(
        x.valid_from_us is None or y.valid_until_us is None or x.valid_from_us < y.valid_until_us
        for x, y in ((a, b), (b, a))
    )


def _some_point(shape: Shape) -> Position:
    """A position in the shape, the more in its middle the better."""
    match shape:
        case Circle() | Ellipse():
            return shape.center
        case Rectangle():
            return box_middle(shape)
        case Polygon():
            return shape.exterior[0]
        case Corridor():
            return shape.line[len(shape.line) // 2]


def _edges_meet(small: Shape, large: Shape, around: Circle) -> bool:
    small_steps, large_steps = (
        _Steps.of(edge, around, *edge.steps(_FIRST_STEPS))
        for edge in (boundary(small), boundary(large))
    )
    for _ in range(_ROUNDS):
        if small_steps.any_point_in(large) or large_steps.any_point_in(small):
            return True
        close_small, close_large = _close_pairs(small_steps, large_steps)
        if not close_small.any():
            return False
        small_steps, large_steps = small_steps.chosen(close_small), large_steps.chosen(close_large)
        touching_m = _TOUCHING * around.radius_m
        if max(small_steps.error_m.max(), large_steps.error_m.max()) < touching_m:
            return True
        if max(small_steps.arcs.size, large_steps.arcs.size) * _CUTS > _MOST_STEPS:
            return True
        small_steps, large_steps = small_steps.cut(), large_steps.cut()
    return True


def _close_pairs(a: _Steps, b: _Steps) -> tuple[BoolArray, BoolArray]:
    close_a = np.zeros(a.arcs.size, dtype=np.bool_)
    close_b = np.zeros(b.arcs.size, dtype=np.bool_)
    if close_a.size and close_b.size:
        import shapely

        tree = shapely.STRtree(a.lines)
        reach_m = b.error_m + a.error_m.max()
        index_b, index_a = tree.query(b.lines, predicate="dwithin", distance=reach_m)
        close_a[index_a] = True
        close_b[index_b] = True
    return close_a, close_b


@dataclass(frozen=True, slots=True)
class _Steps:
    """Pieces of an edge as short lines in the plane about a circle's center."""

    edge: Boundary
    around: Circle
    arcs: IntArray
    fractions: FloatArray  # of the way along its arc: _CUTS + 1 positions on each step
    lats: FloatArray  # of these positions
    lons: FloatArray
    lines: GeometryArray  # shapely's, through these positions
    error_m: FloatArray  # how far the true edge may be from its line

    @classmethod
    def of(
        cls, edge: Boundary, around: Circle, arcs: IntArray, starts: FloatArray, ends: FloatArray
    ) -> _Steps:
        import shapely

        along = np.linspace(0.0, 1.0, _CUTS + 1)
        fractions = starts[:, None] * (1.0 - along) + ends[:, None] * along
        lats, lons = edge.at(np.repeat(arcs, along.size), fractions.ravel())
        distance_m, azimuth_deg = geodesic_inverse(around.center.lat, around.center.lon, lats, lons)
        azimuth = np.radians(azimuth_deg)
        plane = np.stack([np.sin(azimuth), np.cos(azimuth)], axis=-1) * distance_m[:, None]
        plane = plane.reshape(arcs.size, along.size, 2)
        lines: GeometryArray = np.asarray(shapely.linestrings(plane))
        chords = np.asarray(shapely.linestrings(plane[:, [0, -1]]))
        bulge_m = shapely.distance(chords[:, None], shapely.points(plane[:, 1:-1])).max(axis=1)
        length_m = np.hypot(*np.diff(plane, axis=1).transpose(2, 0, 1)).sum(axis=1)
        # Through four times as many points, a smooth curve bulges a sixteenth; a fourth is safe.
        steps = cls(
            edge,
            around,
            arcs,
            fractions,
            lats.reshape(fractions.shape),
            lons.reshape(fractions.shape),
            lines,
            bulge_m / 4.0 + EDGE_M,
        )
        # Steps out of the smaller shape's reach cannot meet it.
        nearest_m = distance_m.reshape(fractions.shape).min(axis=1)
        return steps.chosen(nearest_m <= around.radius_m + length_m + bulge_m)

    def chosen(self, chosen: BoolArray) -> _Steps:
        columns = (getattr(self, field.name)[chosen] for field in fields(self)[2:])
        return _Steps(self.edge, self.around, *columns)

    def cut(self) -> _Steps:
        """The same part of the edge in steps a fourth as long."""
        starts, ends = self.fractions[:, :-1].ravel(), self.fractions[:, 1:].ravel()
        return _Steps.of(self.edge, self.around, np.repeat(self.arcs, _CUTS), starts, ends)

    def any_point_in(self, shape: Shape) -> bool:
        return bool(prepare(shape).contains(self.lats.ravel(), self.lons.ravel()).any())
