"""Points in space against geodesics."""

from __future__ import annotations

import math

from geo.strategies import azimuths_deg, lats, lons
from hypothesis import given
from hypothesis import strategies as st

from mercury.geo import destination, geodesic_m
from mercury.geo.space import from_space, to_space


@given(lats, lons)
def test_a_position_to_space_and_back_is_the_same(lat: float, lon: float) -> None:
    assert float(geodesic_m(lat, lon, *from_space(to_space(lat, lon)))) < 1e-6


@given(lats, lons, azimuths_deg, st.floats(0, 10_000))
def test_short_distances_are_geodesic_ones(
    lat: float, lon: float, azimuth_deg: float, distance_m: float
) -> None:
    there = destination(lat, lon, azimuth_deg, distance_m)
    straight_m = math.dist(to_space(lat, lon), to_space(float(there[0]), float(there[1])))
    assert abs(straight_m - distance_m) < 0.0012


@given(lats, lons, azimuths_deg, st.floats(0, 2_000))
def test_the_middle_of_two_is_halfway(
    lat: float, lon: float, azimuth_deg: float, distance_m: float
) -> None:
    ends = [destination(lat, lon, azimuth_deg + turn, distance_m) for turn in (0.0, 180.0)]
    a, b = (to_space(float(end[0]), float(end[1])) for end in ends)
    x, y, z = ((p + q) / 2 for p, q in zip(a, b, strict=True))
    assert float(geodesic_m(lat, lon, *from_space((x, y, z)))) < 0.01
