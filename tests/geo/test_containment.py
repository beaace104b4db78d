from __future__ import annotations

import math

import numpy as np
import pytest
from geo import oracles
from geo.oracles import reach
from geo.strategies import (
    circles,
    corridors,
    ellipses,
    lats,
    lons,
    pole_rings,
    polygons,
    positions,
    rectangles,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.geo import contains, contains_point, destination
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

CENTER = Position(52.5, 13.4)
SQUARE = Polygon((Position(0, 0), Position(0, 10), Position(10, 10), Position(10, 0)))


def agree(shape: Shape, points: list[Position], expected: list[bool]) -> None:
    """Both kernels against the expected answers."""
    found = contains(shape, [p.lat for p in points], [p.lon for p in points])
    assert found.dtype == np.bool_
    assert found.tolist() == expected, [
        (p, e) for p, f, e in zip(points, found, expected, strict=True) if f != e
    ]
    assert [contains_point(shape, p.lat, p.lon) for p in points] == expected


def around(
    center: Position, angles_deg: list[float], distances_m: list[float], far: list[Position]
) -> list[Position]:
    near = zip(angles_deg, distances_m, strict=True)
    return [oracles.reach(center, angle, distance) for angle, distance in near] + far


# Parts of the radius: on both sides of where the kernel changes from one method to the next.
parts = st.one_of(
    st.floats(0, 3),
    st.sampled_from([1 - 1e-3, 1 - 1e-6, 1 - 1e-8, 1 + 1e-8, 1 + 1e-6, 1 + 1e-3, 1 - 6e-3, 1.006]),
)
samples = st.lists(st.tuples(st.floats(0, 360), parts), min_size=1, max_size=12)
far_points = st.lists(positions, max_size=4)


@given(circles(), samples, far_points)
def test_circles_agree_with_karney(
    shape: Circle, near: list[tuple[float, float]], far: list[Position]
) -> None:
    distances = [min(part * shape.radius_m, 1.99e7) for _, part in near]
    points = around(shape.center, [angle for angle, _ in near], distances, far)
    exact_m = [oracles.distance_m(shape.center, p) for p in points]
    # Within rounding of the edge either answer is right.
    clear = [abs(d - shape.radius_m) > 3e-6 + 1e-12 * shape.radius_m for d in exact_m]
    kept = [(p, d <= shape.radius_m) for p, d, c in zip(points, exact_m, clear, strict=True) if c]
    agree(shape, [p for p, _ in kept], [inside for _, inside in kept])


@given(ellipses(), samples, far_points)
def test_ellipses_agree_with_karney(
    shape: Ellipse, near: list[tuple[float, float]], far: list[Position]
) -> None:
    points = list(far)
    for angle_deg, part in near:
        angle = math.radians(angle_deg)
        along = part * shape.semi_major_m * math.cos(angle)
        across = part * shape.semi_minor_m * math.sin(angle)
        azimuth_deg = math.degrees(math.atan2(across, along)) + shape.azimuth_deg
        length_m = min(math.hypot(along, across), 1.99e7)
        points.append(oracles.reach(shape.center, azimuth_deg, length_m))
    sizes = [oracles.ellipse_size(shape, p) for p in points]
    clear = [abs(size - 1.0) > 5e-6 / shape.semi_minor_m + 1e-9 for size in sizes]
    kept = [(p, s <= 1.0) for p, s, c in zip(points, sizes, clear, strict=True) if c]
    agree(shape, [p for p, _ in kept], [inside for _, inside in kept])


@settings(max_examples=60, deadline=None)
@given(corridors(), st.data())
def test_corridors_agree_with_a_search_along_the_line(shape: Corridor, data: st.DataObject) -> None:
    points = data.draw(far_points)
    half_width_m = shape.width_m / 2.0
    for _ in range(6):
        index = data.draw(st.integers(0, len(shape.line) - 2))
        a, b = shape.line[index], shape.line[index + 1]
        segment = oracles.WGS84.InverseLine(a.lat, a.lon, b.lat, b.lon)
        foot = segment.Position(segment.s13 * data.draw(st.floats(0, 1)))
        azimuth_deg = foot["azi2"] + data.draw(st.sampled_from([90.0, -90.0, 30.0, 180.0]))
        length_m = half_width_m * data.draw(parts)
        points.append(oracles.reach(Position(foot["lat2"], foot["lon2"]), azimuth_deg, length_m))
    exact_m = [oracles.distance_to_line_m(shape.line, p) for p in points]
    clear = [abs(d / half_width_m - 1.0) > 1e-4 for d in exact_m]
    kept = [(p, d <= half_width_m) for p, d, c in zip(points, exact_m, clear, strict=True) if c]
    agree(shape, [p for p, _ in kept], [inside for _, inside in kept])


@pytest.mark.parametrize("lat", [0.0, 52.5, -85.0, 90.0])
@pytest.mark.parametrize("semi_major_m", [100.0, 10_000.0, 300_000.0, 3_000_000.0])
def test_the_edge_of_an_ellipse_is_exact(lat: float, semi_major_m: float) -> None:
    for flatness in (0.05, 0.5, 1.0):
        shape = Ellipse(Position(lat, 180.0), semi_major_m, semi_major_m * flatness, 25.0)
        angle = np.radians(np.linspace(0.0, 360.0, 37))
        along, across = np.cos(angle), flatness * np.sin(angle)
        azimuths_deg = np.degrees(np.arctan2(across, along)) + 25.0
        for part in (1 - 1e-6, 1 + 1e-6):
            distances_m = part * semi_major_m * np.hypot(along, across)
            found = contains(shape, *destination(lat, 180.0, azimuths_deg, distances_m))
            assert (found == (part < 1.0)).all()


@pytest.mark.parametrize("width_m", [1.0, 200.0, 20_000.0, 1_000_000.0])
@pytest.mark.parametrize(("lat", "lon"), [(0, 0), (52.5, 13.4), (-85, 180), (89.95, 0), (90, 0)])
@pytest.mark.parametrize("length_m", [10.0, 15_000.0, 300_000.0])
def test_the_edge_of_a_corridor_is_exact(
    lat: float, lon: float, width_m: float, length_m: float
) -> None:
    """Points at right angles to a segment are as far from it as they were sent."""
    start = Position(lat, lon)
    for direction_deg in (0.0, 37.0, 90.0):
        shape = Corridor((start, reach(start, direction_deg, length_m)), width_m)
        line = oracles.WGS84.DirectLine(lat, lon, direction_deg, length_m)
        for part in (0.2, 0.3, 0.7):
            foot = line.Position(part * length_m)
            for side_deg in (90.0, -90.0):
                for slack_m in (-1e-5, 1e-5):
                    distance_m = width_m / 2.0 + slack_m
                    azimuth_deg = foot["azi2"] + side_deg
                    p = reach(Position(foot["lat2"], foot["lon2"]), azimuth_deg, distance_m)
                    agree(shape, [p], [slack_m < 0])


@given(st.one_of(polygons(), pole_rings()), st.data())
def test_polygons_agree_with_ray_casting(shape: Polygon, data: st.DataObject) -> None:
    points = data.draw(far_points)
    for _ in range(12):
        corner = data.draw(st.sampled_from(shape.exterior))
        lat = corner.lat + data.draw(st.floats(-30, 30))
        lon = math.remainder(corner.lon + data.draw(st.floats(-60, 60)), 360.0)
        points.append(Position(min(max(lat, -89.9), 89.9), lon))
    points = [p for p in points if _is_clear_cut(shape, p)]
    agree(shape, points, [oracles.polygon_contains(shape, p) for p in points])


def _is_clear_cut(shape: Polygon, p: Position) -> bool:
    """Off the edges, and with no corner on the oracle's ray, which it might count twice."""
    return abs(p.lat) < 90.0 and all(
        oracles.distance_to_ring_deg(ring, p) > 1e-9
        and all(abs(math.remainder(p.lon - corner.lon, 360.0)) > 1e-9 for corner in ring)
        for ring in (shape.exterior, *shape.holes)
    )


@given(rectangles(), st.lists(st.tuples(lats, lons), max_size=20))
def test_rectangles(shape: Rectangle, given_points: list[tuple[float, float]]) -> None:
    points = [Position(lat, lon) for lat, lon in given_points if abs(lat) < 90.0]
    agree(shape, points, [oracles.rectangle_contains(shape, p) for p in points])


@pytest.mark.parametrize("lat", [0.0, 52.5, 85.0, -85.0, 90.0, -90.0])
@pytest.mark.parametrize("lon", [0.0, 180.0, -180.0, 179.999])
def test_edges_belong_to_circles(lat: float, lon: float) -> None:
    for radius_m in (1.0, 1_000.0, 250_000.0, 5_000_000.0):
        shape = Circle(Position(lat, lon), radius_m)
        azimuths = np.linspace(0, 360, 73)
        assert contains(shape, *destination(lat, lon, azimuths, radius_m)).all()
        outside = destination(lat, lon, azimuths, radius_m + 1e-3)
        assert not contains(shape, *outside).any()
        assert contains_point(shape, lat, lon)


@pytest.mark.parametrize("shape", [SQUARE, Rectangle(0, 0, 10, 10)])
def test_edges_and_corners_belong_to_plane_shapes(shape: Shape) -> None:
    edge = [Position(0, 0), Position(10, 10), Position(0, 5), Position(5, 10), Position(10, 0)]
    agree(shape, edge, [True] * 5)
    outside = [Position(-1e-9, 5), Position(5, 10 + 1e-9), Position(5, -1e-9)]
    agree(shape, outside, [False] * 3)


@pytest.mark.parametrize(
    "shape",
    [
        Rectangle(-10, 170, 10, -170),
        Polygon((Position(-10, 170), Position(-10, -170), Position(10, -170), Position(10, 170))),
        Circle(Position(0, 180), 1_000_000.0),
        Ellipse(Position(0, -180), 1_100_000.0, 900_000.0, 90.0),
        Corridor((Position(0, 171), Position(0, -171)), 300_000.0),
    ],
)
def test_across_the_antimeridian(shape: Shape) -> None:
    inside = [Position(0, lon) for lon in (175, 180, -180, -175)]
    agree(shape, inside, [True] * 4)
    agree(shape, [Position(0, 0), Position(0, 165), Position(0, -165)], [False] * 3)


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_over_the_poles(pole: float) -> None:
    sign = math.copysign(1.0, pole)
    ring = tuple(Position(80 * sign, lon) for lon in (0, 90, 180, -90))
    hole = tuple(Position(88 * sign, lon) for lon in (45, 135, -135, -45))
    low, high = sorted((pole, 75 * sign))
    for shape in (
        Circle(Position(pole, 0), 1_200_000.0),
        Ellipse(Position(pole, 0), 1_200_000.0, 1_150_000.0, 10.0),
        Corridor((Position(80 * sign, 0), Position(80 * sign, 180)), 1_200_000.0),
        Polygon(ring),
        Rectangle(low, -180, high, 180),
    ):
        everywhere = [Position(pole, lon) for lon in (-180, -90, 0, 33, 180)]
        agree(shape, everywhere, [True] * 5)
        agree(shape, [Position(85 * sign, 0), Position(85 * sign, 180)], [True, True])
        agree(shape, [Position(70 * sign, 45), Position(-pole, 0)], [False, False])
    around_pole = Polygon(ring, (hole,))
    agree(around_pole, [Position(pole, 0), Position(89 * sign, 45)], [False, False])
    seam = [Position(85 * sign, lon) for lon in (0, -1e-9, 45, 180, -180)]
    agree(around_pole, seam, [True] * 5)


def test_a_wedge_that_touches_the_pole_has_it_at_every_longitude() -> None:
    wedge = Polygon((Position(80, 10), Position(80, 20), Position(90, 15)))
    agree(wedge, [Position(90, -100), Position(85, -100), Position(81, 15)], [True, False, True])
    agree(Rectangle(80, 10, 90, 20), [Position(90, -100), Position(85, -100)], [True, False])


def test_a_hole_in_a_polygon_across_the_antimeridian() -> None:
    exterior = (Position(-10, 170), Position(-10, -170), Position(10, -170), Position(10, 170))
    hole = (Position(-1, -176), Position(-1, -174), Position(1, -174), Position(1, -176))
    shape = Polygon(exterior, (hole,))
    points = [Position(0, -175), Position(0, 175), Position(0, -176), Position(0, -173)]
    agree(shape, points, [False, True, True, True])
    agree(Polygon(exterior, (exterior,)), [Position(5, 180)], [False])


def test_a_ring_that_crosses_itself_is_read_even_odd() -> None:
    bow_tie = Polygon((Position(0, 0), Position(10, 10), Position(10, 0), Position(0, 10)))
    points = [Position(9, 5), Position(1, 5), Position(5, 1), Position(5, 9), Position(5, 5)]
    agree(bow_tie, points, [True, True, False, False, True])


ALL_SHAPES: list[Shape] = [
    Circle(CENTER, 5_000.0),
    Circle(Position(90, 0), 15_500_000.0),
    Ellipse(CENTER, 5_000.0, 1_000.0, 30.0),
    Rectangle(50, 10, 55, 15),
    Rectangle(-90, -180, 90, 180),
    SQUARE,
    Corridor((CENTER, Position(52.6, 13.5)), 500.0),
    Corridor((CENTER, CENTER), 500.0),
]


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_no_points_and_points_that_are_none(shape: Shape) -> None:
    assert contains(shape, [], []).shape == (0,)
    bad = [(np.nan, 13.4), (52.5, np.nan), (np.inf, 13.4), (52.5, -np.inf), (91.0, 13.4)]
    bad += [(52.5, 181.0), (90.0, np.nan), (-90.0, np.nan)]
    assert not contains(shape, *np.array(bad).T).any()
    assert not any(contains_point(shape, lat, lon) for lat, lon in bad)


def test_answers_have_the_shape_of_the_question() -> None:
    lats_deg, lons_deg = np.full((3, 2), 52.5), np.full((3, 2), 13.4)
    assert contains(ALL_SHAPES[0], lats_deg, lons_deg).tolist() == [[True, True]] * 3
    assert contains(ALL_SHAPES[0], 52.5, 13.4).shape == ()
    with pytest.raises(ValueError, match="differ in shape"):
        contains(ALL_SHAPES[0], [1.0, 2.0], [1.0])


def test_many_points_are_each_answered() -> None:
    random = np.random.default_rng(7)
    lats_deg, lons_deg = random.uniform(52.3, 52.7, 20_000), random.uniform(13.1, 13.7, 20_000)
    for shape in (Circle(CENTER, 15_000.0), Ellipse(CENTER, 15_000.0, 9_000.0, 20.0)):
        found = contains(shape, lats_deg, lons_deg)
        singly = [
            contains_point(shape, lat, lon)
            for lat, lon in zip(lats_deg.tolist(), lons_deg.tolist(), strict=True)
        ]
        assert found.tolist() == singly
        assert 0 < found.sum() < found.size


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        (350.0, True),
        (330.0, True),
        (10.0, True),
        (11.0, False),
        (170.0, False),
        (-10.0, True),
        (710.0, True),
        (math.nan, True),
        (math.inf, True),
    ],
)
def test_heading_sectors(heading: float, expected: bool) -> None:
    area = Area(Circle(CENTER, 100.0), HeadingSector(350.0, 20.0))
    assert contains(area, [52.5, 0.0], [13.4, 0.0], [heading, heading]).tolist() == [
        expected,
        False,
    ]
    assert contains_point(area, 52.5, 13.4, heading) is expected
    assert contains_point(area, 52.5, 13.4)
    assert contains(area, [52.5], [13.4]).all()


@given(st.floats(-360, 360), st.floats(0, 180), st.floats(-720, 720))
def test_heading_sectors_agree_with_unit_vectors(
    center: float, half: float, heading: float
) -> None:
    difference = math.radians(heading - center)
    angle = math.degrees(abs(math.atan2(math.sin(difference), math.cos(difference))))
    if abs(angle - half) < 1e-6:
        return
    area = Area(Circle(CENTER, 100.0), HeadingSector(center, half))
    assert contains(area, [52.5], [13.4], [heading]).tolist() == [angle < half]
    assert contains_point(area, 52.5, 13.4, heading) is (angle < half)


@pytest.mark.parametrize(
    ("now_us", "expected"), [(None, True), (99, False), (100, True), (199, True), (200, False)]
)
def test_validity_starts_with_and_ends_before(now_us: int | None, expected: bool) -> None:
    area = Area(Circle(CENTER, 100.0), valid_from_us=100, valid_until_us=200)
    assert contains(area, [52.5], [13.4], now_us=now_us).tolist() == [expected]
    assert contains_point(area, 52.5, 13.4, now_us=now_us) is expected
