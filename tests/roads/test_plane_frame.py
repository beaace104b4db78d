"""A plane's metres and the Earth's degrees agree."""

from __future__ import annotations

import numpy as np
import pytest
from geographiclib.geodesic import Geodesic
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.model.area import Position
from mercury.roads.plane import PlaneFrame

ORIGINS = [(40.7608, -111.8910), (0.0, 0.0), (-33.9, 179.99), (68.0, 20.0)]
offsets = st.floats(-10_000.0, 10_000.0)


@given(origin=st.sampled_from(ORIGINS), x=offsets, y=offsets)
@settings(max_examples=200, deadline=None)
def test_there_and_back_within_a_centimetre(
    origin: tuple[float, float], x: float, y: float
) -> None:
    frame = PlaneFrame(Position(*origin))
    back_x, back_y = frame.to_plane(*frame.to_wgs84(x, y))
    assert float(np.hypot(back_x - x, back_y - y)) < 0.01


@given(origin=st.sampled_from(ORIGINS), x=offsets, y=offsets, x2=offsets, y2=offsets)
@settings(max_examples=200, deadline=None)
def test_distances_of_the_plane_are_those_of_the_earth(
    origin: tuple[float, float], x: float, y: float, x2: float, y2: float
) -> None:
    frame = PlaneFrame(Position(*origin))
    lats, lons = frame.to_wgs84([x, x2], [y, y2])
    earth_m = Geodesic.WGS84.Inverse(lats[0], lons[0], lats[1], lons[1])["s12"]
    assert earth_m == pytest.approx(np.hypot(x2 - x, y2 - y), abs=0.05)


def test_x_is_east_and_y_is_north() -> None:
    frame = PlaneFrame(Position(40.0, -111.0))
    lats, lons = frame.to_wgs84([0.0, 1000.0, 0.0], [0.0, 0.0, 1000.0])
    assert (lats[0], lons[0]) == pytest.approx((40.0, -111.0))
    assert lons[1] - -111.0 == pytest.approx(1000.0 / 85_394.0, rel=1e-3)
    assert abs(lats[1] - 40.0) < 1e-5
    assert lats[2] - 40.0 == pytest.approx(1000.0 / 111_035.0, rel=1e-3)
    assert abs(lons[2] - -111.0) < 1e-9
