from __future__ import annotations

import numpy as np
import pytest
from geographiclib.geodesic import Geodesic  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from mercury.geo import destination, geodesic_inverse, geodesic_m, haversine_m

lats, lons = st.floats(-90, 90), st.floats(-180, 180)


@given(lats, lons, lats, lons)
def test_distances_agree_with_karney(lat1: float, lon1: float, lat2: float, lon2: float) -> None:
    exact_m = Geodesic.WGS84.Inverse(lat1, lon1, lat2, lon2)["s12"]
    assert float(geodesic_m(lat1, lon1, lat2, lon2)) == pytest.approx(exact_m, abs=1e-5)
    assert float(haversine_m(lat1, lon1, lat2, lon2)) == pytest.approx(exact_m, rel=0.006, abs=1e-3)


@given(lats, lons, st.floats(0, 360), st.floats(1.0, 1.9e7))
def test_destination_and_inverse_agree_with_geographiclib(
    lat: float, lon: float, azimuth_deg: float, length_m: float
) -> None:
    exact = Geodesic.WGS84.Direct(lat, lon, azimuth_deg, length_m)
    there_lat, there_lon = destination(lat, lon, azimuth_deg, length_m)
    assert float(geodesic_m(exact["lat2"], exact["lon2"], there_lat, there_lon)) < 1e-5
    distance_m, back_deg = geodesic_inverse(lat, lon, there_lat, there_lon)
    assert float(distance_m) == pytest.approx(length_m, abs=1e-5)
    assert 0.0 <= float(back_deg) < 360.0
    again_lat, again_lon = destination(lat, lon, back_deg, distance_m)
    assert float(geodesic_m(there_lat, there_lon, again_lat, again_lon)) < 1e-5


def test_arguments_broadcast_and_may_be_empty() -> None:
    grid = geodesic_m(np.zeros((3, 1)), 0.0, np.zeros(4), 1.0)
    assert grid.shape == (3, 4)
    assert haversine_m(0.0, 0.0, [], []).shape == (0,)
    assert geodesic_m(0.0, 0.0, [], []).shape == (0,)
    distance_m, azimuth_deg = geodesic_inverse(0.0, 0.0, [], [])
    assert distance_m.shape == azimuth_deg.shape == (0,)
    assert destination(0.0, 0.0, [], [])[0].shape == (0,)


def test_antipodes_and_nan() -> None:
    assert float(haversine_m(90, 0, -90, 0)) == pytest.approx(np.pi * 6_371_008.77, rel=1e-9)
    assert float(geodesic_m(90, 0, -90, 0)) == pytest.approx(20_003_931.4586, abs=1e-3)
    assert np.isnan(haversine_m(np.nan, 0, 0, 0))
    assert np.isnan(geodesic_m(np.nan, 0, 0, 0))


def test_arguments_are_not_overwritten() -> None:
    given_lats, given_lons = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    geodesic_inverse(given_lats, given_lons, given_lats + 1, given_lons)
    destination(given_lats, given_lons, 90.0, 1e5)
    assert given_lats.tolist() == [1.0, 2.0]
    assert given_lons.tolist() == [3.0, 4.0]
