from __future__ import annotations

import math

import numpy as np
import pytest
from geo.oracles import distance_m, reach
from geo.strategies import (
    azimuths_deg,
    circles,
    corridors,
    ellipses,
    lengths_m,
    pole_rings,
    polygons,
    positions,
    rectangles,
    shapes,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.geo import (
    bounding_circle,
    contains,
    destination,
    geodesic_m,
    haversine_m,
    overlaps,
)
from mercury.geo.outline import boundary
from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
    Shape,
)

WORLD = Rectangle(-90, -180, 90, 180)
ORIGIN = Position(0, 0)


def samples(shape: Shape, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the shape: its edge, and what is in it of a disc of points about its middle."""
    edge = boundary(shape)
    arcs, starts, _ = edge.steps(count)
    edge_lats, edge_lons = edge.at(arcs, starts)
    around = bounding_circle(shape)
    spiral = np.arange(count) * 137.508
    distance = around.radius_m * np.sqrt(np.linspace(0, 1, count))
    lats, lons = destination(around.center.lat, around.center.lon, spiral, distance)
    inside = contains(shape, lats, lons)
    return np.concatenate([edge_lats, lats[inside]]), np.concatenate([edge_lons, lons[inside]])


# Two shapes of like size close to one another, where it is hard to tell.
@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Shape, Shape]:
    center = draw(positions)
    size_m = draw(lengths_m(10, 3e6))
    near = st.builds(
        lambda az, part: reach(center, az, part * size_m), azimuths_deg, st.floats(0, 2)
    )

    def one() -> Shape:
        p = draw(near)
        part = draw(st.floats(0.05, 1)) * size_m
        kind = draw(st.integers(0, 4))
        if kind == 0:
            return Circle(p, part)
        if kind == 1:
            return Ellipse(p, part, part * draw(st.floats(0.05, 1)), draw(azimuths_deg))
        if kind == 2:
            return Corridor((p, draw(near)), part * draw(st.floats(0.02, 1)))
        half = min(math.degrees(part / 6.4e6), 40.0)
        lat = min(max(p.lat, half - 90.0), 90.0 - half)
        wide = half / max(math.cos(math.radians(lat)), 0.2)
        south, north = lat - half, lat + half
        west, east = (math.remainder(p.lon + s * wide, 360.0) for s in (-1, 1))
        if kind == 3:
            return Rectangle(south, west, north, east)
        top = Position(north, p.lon)
        return Polygon((Position(south, west), Position(south, east), top))

    return one(), one()


@settings(max_examples=150, deadline=None)
@given(st.one_of(neighbours(), st.tuples(shapes, shapes)))
def test_a_common_point_is_never_missed(pair: tuple[Shape, Shape]) -> None:
    a, b = pair
    common = contains(b, *samples(a, 400)).any() or contains(a, *samples(b, 400)).any()
    if common:
        assert overlaps(a, b)
        assert overlaps(b, a)


@settings(max_examples=100, deadline=None)
@given(neighbours())
def test_overlaps_are_real(pair: tuple[Shape, Shape]) -> None:
    """What is said to overlap comes within a hair of itself when sampled densely."""
    a, b = pair
    if not overlaps(a, b):
        return
    lats, lons = samples(a, 3_000)
    if contains(b, lats, lons).any() or contains(a, *samples(b, 3_000)).any():
        return
    # Some overlaps are thinner than the samples are dense: then the edges must be as close.
    other_lats, other_lons = samples(b, 3_000)
    size_m = min(bounding_circle(a).radius_m, bounding_circle(b).radius_m)
    size_m = max(size_m, max(bounding_circle(a).radius_m, bounding_circle(b).radius_m) / 20)
    gaps = [
        float(np.min(haversine_m(lat, lon, other_lats, other_lons)))
        for lat, lon in zip(lats[::4], lons[::4], strict=True)
    ]
    assert min(gaps) < 0.05 * size_m


@given(circles(8e6), st.floats(0, 360), lengths_m(1, 8e6), st.floats(-1, 1), st.booleans())
def test_circles_overlap_exactly_when_their_radii_reach(
    a: Circle, azimuth_deg: float, radius_m: float, part: float, close: bool
) -> None:
    together_m = a.radius_m + radius_m
    b = Circle(
        reach(a.center, azimuth_deg, together_m * (1 + part * (1e-5 if close else 1))), radius_m
    )
    apart_m = distance_m(a.center, b.center)
    if abs(apart_m - together_m) > 3e-6 + 1e-9 * together_m:
        assert overlaps(a, b) is (apart_m < together_m)


@pytest.mark.parametrize(
    "center", [ORIGIN, Position(52.5, 13.4), Position(85, 180), Position(90, 0)]
)
@pytest.mark.parametrize(("first_m", "second_m"), [(1e3, 1e3), (1e5, 100.0), (1e5, 2e6)])
@pytest.mark.parametrize("azimuth_deg", [0.0, 33.3, 250.0])
def test_shallow_overlaps_of_round_ellipses_are_found(
    center: Position, first_m: float, second_m: float, azimuth_deg: float
) -> None:
    """Round ellipses have no quick answer as circles do, but the same exact one."""
    a = Ellipse(center, first_m, first_m, 0.0)
    smaller_m = min(first_m, second_m)
    for depth_m in (1e-2 * smaller_m, 1e-4 * smaller_m, 2e-6 * smaller_m):
        touching = reach(center, azimuth_deg, first_m + second_m - depth_m)
        assert overlaps(a, Ellipse(touching, second_m, second_m, 0.0))
        assert overlaps(Circle(touching, second_m), a)
        missing = reach(center, azimuth_deg, first_m + second_m + depth_m)
        assert not overlaps(a, Ellipse(missing, second_m, second_m, 0.0))


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(ellipses(1e6), corridors(), polygons(), pole_rings(), rectangles()),
    st.integers(0, 10_000),
    azimuths_deg,
    lengths_m(10, 1e5),
)
def test_circles_that_just_reach_a_shape(
    shape: Shape, choice: int, azimuth_deg: float, length_m: float
) -> None:
    """A circle about a point outside overlaps just when it is as large as the distance."""
    lats, lons = samples(shape, 200)
    start = Position(float(lats[choice % lats.size]), float(lons[choice % lats.size]))
    center = reach(start, azimuth_deg, length_m)
    assert overlaps(shape, Circle(center, length_m * (1 + 1e-5) + 1e-4))
    dense_lats, dense_lons = samples(shape, 4_000)
    nearest_m = float(np.min(geodesic_m(center.lat, center.lon, dense_lats, dense_lons)))
    gap_m = 4 * 2 * math.pi * bounding_circle(shape).radius_m / 4_000
    outside = not contains(shape, center.lat, center.lon)
    if outside and nearest_m - gap_m > 1.0:
        assert not overlaps(shape, Circle(center, nearest_m - gap_m))


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_the_world_overlaps_everything(shape: Shape) -> None:
    assert overlaps(WORLD, shape)
    assert overlaps(shape, WORLD)
    assert overlaps(shape, shape)


SQUARE = Polygon((Position(-5, -5), Position(-5, 5), Position(5, 5), Position(5, -5)))
HOLE = (Position(-4, -4), Position(-4, 4), Position(4, 4), Position(4, -4))
RING = Polygon(SQUARE.exterior, (HOLE,))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (RING, Circle(ORIGIN, 400_000.0), False),
        (RING, Circle(ORIGIN, 460_000.0), True),
        (RING, Circle(ORIGIN, 5_000_000.0), True),
        (RING, Rectangle(-3.999, -3.999, 3.999, 3.999), False),
        (RING, Rectangle(-4, -4, 4, 4), True),
        # A cross: neither has a corner or the middle of the other.
        (Rectangle(-1, -30, 1, 20), Rectangle(-20, -1, 30, 1), True),
        (Rectangle(-1, -30, 1, 20), Corridor((Position(-20, 0), Position(30, 0)), 100.0), True),
        (Rectangle(-1, -30, 1, 20), Ellipse(Position(9, 0), 2e6, 100.0, 0.0), True),
        # Across the antimeridian.
        (Rectangle(0, 170, 10, 180), Rectangle(0, -180, 10, -170), True),
        (Rectangle(0, 170, 10, 179), Rectangle(0, -179, 10, -170), False),
        (Rectangle(0, 170, 10, -175), Circle(Position(5, -174), 120_000.0), True),
        (Rectangle(0, 170, 10, -175), Circle(Position(5, -174), 110_000.0), False),
        # Poles.
        (Rectangle(80, 0, 90, 1), Rectangle(80, 100, 90, 101), True),
        (Rectangle(80, 0, 89, 1), Rectangle(80, 100, 89, 101), False),
        (Rectangle(80, 0, 89, 360 - 181), Circle(Position(90, 0), 111_000.0), False),
        (Rectangle(80, 0, 89, 179), Circle(Position(90, 0), 112_000.0), True),
        (Rectangle(-90, 0, -89, 179), Circle(Position(-90, 0), 1.0), True),
        (
            Polygon(tuple(Position(60, x) for x in (0, 120, -120))),
            Circle(Position(90, 0), 9.0),
            True,
        ),
        (
            Polygon(tuple(Position(-60, x) for x in (0, 120, -120))),
            Circle(Position(90, 0), 9.0),
            False,
        ),
        # A parallel is not a geodesic: at 85° N a corridor between two of its points leaves it.
        (
            Rectangle(84, -60, 85, 60),
            Corridor((Position(85.1, -50), Position(85.1, 50)), 10.0),
            False,
        ),
        (Rectangle(85, -60, 86, 60), Corridor((Position(84, -50), Position(84, 50)), 10.0), True),
    ],
)
def test_known_pairs_of_shapes_overlap_or_not(a: Shape, b: Shape, expected: bool) -> None:
    assert overlaps(a, b) is expected
    assert overlaps(b, a) is expected


def test_only_shared_time_counts_and_headings_do_not() -> None:
    circle = Circle(ORIGIN, 100.0)
    early, late = Area(circle, None, 0, 100), Area(circle, None, 100, 200)
    assert not overlaps(early, late)
    assert not overlaps(late, early)
    assert overlaps(early, Area(circle, None, 99))
    assert overlaps(Area(circle, None, None, 50), early)
    assert overlaps(early, circle)
    assert overlaps(Area(circle, HeadingSector(0, 10)), Area(circle, HeadingSector(180, 10)))
