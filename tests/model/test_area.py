from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
)
from mercury.model.errors import AreaError
from mercury.model.ring import signed_area_deg2

CENTER = Position(52.5, 13.4)
TRIANGLE = (Position(0, 0), Position(0, 10), Position(10, 0))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Position(90.1, 0), "latitude 90.1 is not between -90 and 90"),
        (lambda: Position(0, -180.5), "longitude -180.5 is not between -180 and 180"),
        (lambda: Position(math.nan, 0), "latitude nan"),
        (lambda: Position(0, math.inf), "longitude inf"),
        (lambda: Position("1", 0), "latitude must be a number, not str"),  # type: ignore[arg-type]
        (lambda: Position(True, 0), "latitude must be a number, not bool"),
        (lambda: Position(10**400, 0), "latitude inf"),
        (lambda: Circle(CENTER, 0), "radius_m must be larger than 0"),
        (lambda: Circle(CENTER, -1), "radius_m -1.0 is not between"),
        (lambda: Circle(CENTER, math.nan), "radius_m nan"),
        (
            lambda: Circle(CENTER, 3e7),
            "radius_m 30000000.0 is not between 0 and 20003931",
        ),
        (lambda: Circle((1, 2), 5), "must be a Position, not tuple"),  # type: ignore[arg-type]
        (lambda: Ellipse(CENTER, 1, 2, 0), "semi_minor_m 2.0 is larger"),
        (lambda: Ellipse(CENTER, 2, 1, 400), "azimuth_deg 400.0"),
        (lambda: Rectangle(1, 0, 1, 5), "south 1.0 is not below its north 1.0"),
        (lambda: Rectangle(0, 5, 1, 5), "has no width"),
        (lambda: Rectangle(0, 180, 1, -180), "has no width"),
        (lambda: Polygon(TRIANGLE[:2]), "at least 3 distinct points, not 2"),
        (lambda: Polygon((*TRIANGLE[:2], TRIANGLE[0])), "at least 3 distinct points, not 2"),
        (lambda: Polygon(TRIANGLE, (TRIANGLE[:2],)), "hole needs at least 3"),
        (lambda: Polygon(5), "must be a sequence of Positions"),  # type: ignore[arg-type]
        (lambda: Polygon(TRIANGLE, 5), "holes are not a sequence"),  # type: ignore[arg-type]
        (lambda: Corridor((CENTER,), 10), "at least 2 points, not 1"),
        (lambda: Corridor((CENTER, CENTER), 0), "width_m must be larger than 0"),
        (lambda: HeadingSector(0, 181), "half_width_deg 181.0"),
        (lambda: Area("circle"), "shape cannot be a str"),  # type: ignore[arg-type]
        (lambda: Area(Circle(CENTER, 1), heading=90), "heading cannot be a int"),  # type: ignore[arg-type]
        (lambda: Area(Circle(CENTER, 1), None, 5, 5), "valid_from_us 5 is not before"),
        (lambda: Area(Circle(CENTER, 1), None, -5), "between the years 1970 and 9999"),
        (lambda: Area(Circle(CENTER, 1), None, 1.5), "whole number"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_exist_is_refused_with_a_sentence(
    build: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(AreaError, match=sentence.replace(".", r"\.")):
        build()


def test_a_band_round_the_earth_is_not_silently_empty() -> None:
    corners = (Position(-10, -180), Position(-10, 180), Position(10, 180), Position(10, -180))
    with pytest.raises(AreaError, match="encloses nothing"):
        Polygon(corners)


def test_numbers_are_stored_as_floats() -> None:
    position = Position(np.float32(1.5), np.int64(2))  # type: ignore[arg-type]
    assert type(position.lat) is float
    assert type(position.lon) is float
    assert type(Circle(position, 5).radius_m) is float


def test_rings_are_stored_open_and_right_handed() -> None:
    ring = TRIANGLE
    clockwise = (ring[0], ring[2], ring[1])
    hole = (Position(1, 1), Position(1, 2), Position(2, 1))
    polygon = Polygon((*clockwise, clockwise[0]), ((*hole, hole[0]),))
    assert polygon.exterior == ring
    assert polygon.holes == ((hole[0], hole[2], hole[1]),)


@pytest.mark.parametrize("pole", [1, -1])
def test_a_ring_round_a_pole_has_the_pole_on_its_left(pole: int) -> None:
    eastward = tuple(Position(80 * pole, lon) for lon in (0, 120, -120))
    westward = (eastward[0], eastward[2], eastward[1])
    expected = eastward if pole == 1 else westward
    assert Polygon(eastward).exterior == Polygon(westward).exterior == expected


positions = st.builds(Position, st.floats(-90, 90), st.floats(-180, 180))


@given(st.lists(positions, min_size=3, max_size=8))
def test_direction_is_settled_once(points: list[Position]) -> None:
    try:
        polygon = Polygon(tuple(points))
    except AreaError:
        return
    assert Polygon(polygon.exterior) == polygon
    ring = polygon.exterior
    assert signed_area_deg2([p.lat for p in ring], [p.lon for p in ring]) >= 0.0
    backwards = (ring[0], *ring[:0:-1])
    assert Polygon(backwards).exterior in (ring, backwards)


@pytest.mark.parametrize(
    "shape",
    [
        Circle(CENTER, 5.0),
        Ellipse(CENTER, 5.0, 4.0, 3.0),
        Rectangle(1, 2, 3, 4),
        Polygon(TRIANGLE),
        Corridor(TRIANGLE, 3.0),
    ],
)
def test_areas_are_values(shape: Circle) -> None:
    area = Area(shape, HeadingSector(90, 45), 1, 2)
    twin = pickle.loads(pickle.dumps(area))
    assert twin == area == copy.deepcopy(area)
    assert hash(twin) == hash(area)
    assert not hasattr(area, "__dict__")
    with pytest.raises(AttributeError):
        area.shape = shape  # type: ignore[misc]
