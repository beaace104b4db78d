"""The error bounds that let the kernels skip the exact geodesic, measured."""

from __future__ import annotations

import numpy as np
import pytest

from mercury.geo import destination, geodesic_m
from mercury.geo.local_frame import FlatFrame, LocalFrame, chord_limits_squared

LATS = [-90.0, -85.0, -60.0, -30.0, 0.0, 1.0, 45.0, 75.0, 89.9, 90.0]
AZIMUTHS = np.linspace(0.0, 360.0, 145)


@pytest.mark.parametrize("lat", LATS)
@pytest.mark.parametrize("radius_m", [1.0, 1e4, 1e6, 5e6, 1e7, 1.4e7, 1.6e7, 1.9e7, 1.99e7, 2e7])
def test_chords_settle_nothing_wrongly(lat: float, radius_m: float) -> None:
    inside_limit, outside_limit = chord_limits_squared(radius_m)
    for part in (0.999, 0.999999, 1.000001, 1.001):
        lats, lons = destination(lat, 179.0, AZIMUTHS, min(radius_m * part, 2.0003e7))
        exact_m = geodesic_m(lat, 179.0, lats, lons)
        _, _, chord_squared = LocalFrame(lat, 179.0).offsets(lats, lons)
        assert (exact_m[chord_squared <= inside_limit] <= radius_m).all()
        assert (exact_m[chord_squared > outside_limit] > radius_m).all()


def test_chords_settle_nearly_everything() -> None:
    inside_limit, outside_limit = chord_limits_squared(10_000.0)
    assert np.sqrt(outside_limit) - np.sqrt(inside_limit) < 1e-4


@pytest.mark.parametrize("lat", LATS)
def test_a_flat_earth_is_no_worse_than_it_says(lat: float) -> None:
    for reach_m in (1.0, 1e3, 1e4, 1e5, 3e5, 1e6):
        frame = FlatFrame.within(lat, -179.99, reach_m)
        if frame is None:
            assert abs(lat) > 70 or reach_m > 5e5
            continue
        for part in (0.1, 0.5, 1.0):
            lats, lons = destination(lat, -179.99, AZIMUTHS, part * reach_m)
            north, east = frame.offsets(lats, lons)
            azimuth = np.radians(AZIMUTHS)
            off_m = np.hypot(
                north - part * reach_m * np.cos(azimuth), east - part * reach_m * np.sin(azimuth)
            )
            assert off_m.max() <= frame.error_m
