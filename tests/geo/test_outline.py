from __future__ import annotations

import numpy as np
import pytest
from geo.oracles import distance_m, shape_contains
from geo.strategies import shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.geo import bounding_circle, bounds, contains
from mercury.geo.box import Box
from mercury.geo.outline import boundary
from mercury.model.area import Circle, Corridor, Ellipse, Polygon, Position, Rectangle, Shape

CENTER = Position(52.5, 13.4)
CORRIDOR = Corridor((Position(52.4, 13.1), CENTER, Position(52.4, 13.7)), 300.0)


def edge_points(shape: Shape, count: int) -> tuple[np.ndarray, np.ndarray]:
    # A hole's edge may lie outside: only the exterior tells how far a polygon reaches.
    edge = boundary(Polygon(shape.exterior) if isinstance(shape, Polygon) else shape)
    arcs, starts, _ = edge.steps(count)
    return edge.at(arcs, starts)


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_bounds_and_bounding_circle_hold_the_whole_edge(shape: Shape) -> None:
    lats, lons = edge_points(shape, 300)
    south, west, north, east = bounds(shape)
    assert -90 <= south <= north <= 90
    slack = 1e-9  # of the samples, which are rounded too
    box = Box(max(south - slack, -90), west, min(north + slack, 90), east)
    turns = [lons - slack, lons, lons + slack]
    inside = np.any([box.contains(lats, np.clip(x, -180, 180)) for x in turns], axis=0)
    assert inside.all()
    around = bounding_circle(shape)
    assert contains(Circle(around.center, around.radius_m + 1e-3), lats, lons).all()


@settings(max_examples=60, deadline=None)
@given(shapes, st.floats(-90, 90), st.floats(-180, 180))
def test_what_is_in_the_shape_is_in_its_bounds(shape: Shape, lat: float, lon: float) -> None:
    if shape_contains(shape, Position(lat, lon)) and contains(shape, lat, lon):
        assert Box(*bounds(shape)).contains_point(lat, lon)
        around = bounding_circle(shape)
        assert distance_m(around.center, Position(lat, lon)) <= around.radius_m + 1e-3


def test_bounds_are_tight() -> None:
    assert bounds(Rectangle(1, 170, 2, -170)) == (1, 170, 2, -170)
    across = Polygon((Position(0, 170), Position(0, -170), Position(10, 180)))
    assert bounds(across) == (0, 170, 10, -170)
    south, west, north, east = bounds(Ellipse(Position(0, 0), 100_000.0, 1_000.0, 90.0))
    assert north - south < 0.1
    assert 1.79 < east - west < 1.87
    south, west, north, east = bounds(Corridor((Position(0, 0), Position(0, 1)), 1_000.0))
    assert north - south < 0.02
    assert 1.008 < east - west < 1.02


@pytest.mark.parametrize(
    "shape",
    [
        Circle(Position(89.99, 5), 5_000.0),
        Ellipse(Position(89.99, 5), 5_000.0, 3_000.0, 0.0),
        Corridor((Position(89.9, 0), Position(89.9, 180)), 100.0),
        Polygon((Position(80, 0), Position(80, 120), Position(80, -120))),
    ],
)
def test_what_holds_a_pole_has_every_longitude(shape: Shape) -> None:
    south, west, north, east = bounds(shape)
    assert south > 79
    assert (west, north, east) == (-180, 90, 180)


def test_bounding_circles_are_close() -> None:
    assert bounding_circle(Rectangle(80, -180, 90, 180)).radius_m < 1_160_000
    assert bounding_circle(CORRIDOR).radius_m < 22_000
    assert bounding_circle(Rectangle(-90, -180, 90, 180)).radius_m > 20_003_931
