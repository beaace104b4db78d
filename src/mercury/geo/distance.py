"""Distances and directions on the Earth: fast on the sphere, exact on the WGS84 ellipsoid.

All arguments broadcast against one another, as NumPy's do.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mercury.geo.arrays import FloatArray

if TYPE_CHECKING:
    from pyproj import Geod

MEAN_RADIUS_M = 6_371_008.7714  # IUGG mean radius of WGS84, (2a + b) / 3
DEGREE_M = math.radians(1.0) * MEAN_RADIUS_M  # of latitude
# With geodetic latitudes put on the mean sphere, a distance is off by at most 0.56 %, along the
# meridian at the equator; by 0.45 % near the poles.
SPHERE_ERROR = 0.006


@cache
def _wgs84() -> Geod:
    # Imported when needed: a device that only gets circles need not load it.
    from pyproj import Geod

    return Geod(ellps="WGS84")


def haversine_m(lat1: ArrayLike, lon1: ArrayLike, lat2: ArrayLike, lon2: ArrayLike) -> FloatArray:
    """Great-circle distances on the mean sphere, within 0.6 % of the geodesic ones."""
    phi1, lambda1 = np.radians(lat1), np.radians(lon1)
    phi2, lambda2 = np.radians(lat2), np.radians(lon2)
    half_chord_squared = (
        np.sin((phi2 - phi1) / 2.0) ** 2
        + np.cos(phi1) * np.cos(phi2) * np.sin((lambda2 - lambda1) / 2.0) ** 2
    )
    # Rounding may lift antipodes just above 1, where the arcsine ends.
    angle = 2.0 * np.arcsin(np.sqrt(np.minimum(half_chord_squared, 1.0)))
    return np.asarray(MEAN_RADIUS_M * angle, dtype=np.float64)


def geodesic_m(lat1: ArrayLike, lon1: ArrayLike, lat2: ArrayLike, lon2: ArrayLike) -> FloatArray:
    """Exact distances on WGS84."""
    lats1, lons1, lats2, lons2 = _broadcast(lat1, lon1, lat2, lon2)
    _, _, distance_m = _wgs84().inv(lons1, lats1, lons2, lats2)
    return np.asarray(distance_m, dtype=np.float64)


def geodesic_inverse(
    lat0: ArrayLike, lon0: ArrayLike, lats: ArrayLike, lons: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Exact distances and departing azimuths, in [0, 360), from the first position to the others.

    The azimuth between coincident positions is arbitrary.
    """
    lats0, lons0, lats2, lons2 = _broadcast(lat0, lon0, lats, lons)
    azimuth, _, distance_m = _wgs84().inv(lons0, lats0, lons2, lats2)
    return np.asarray(distance_m, dtype=np.float64), compass(azimuth)


def geodesic_inverse_of_point(
    lat0: float, lon0: float, lat: float, lon: float
) -> tuple[float, float]:
    """The same for one position, without arrays; the azimuth may be negative."""
    azimuth_deg, _, distance_m = _wgs84().inv(lon0, lat0, lon, lat)
    return distance_m, azimuth_deg


def destination(
    lat: ArrayLike, lon: ArrayLike, azimuth_deg: ArrayLike, distance_m: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Exact latitudes and longitudes of where geodesics of these lengths arrive."""
    lats, lons, _ = destination_and_azimuth(lat, lon, azimuth_deg, distance_m)
    return lats, lons


def destination_and_azimuth(
    lat: ArrayLike, lon: ArrayLike, azimuth_deg: ArrayLike, distance_m: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Like `destination`, with the azimuth in which each geodesic would go on."""
    lats, lons, azimuths, distances = _broadcast(lat, lon, azimuth_deg, distance_m)
    lons2, lats2, back_azimuths = _wgs84().fwd(lons, lats, azimuths, distances)
    return (
        np.asarray(lats2, dtype=np.float64),
        np.asarray(lons2, dtype=np.float64),
        np.asarray(back_azimuths, dtype=np.float64) + 180.0,
    )


def compass(degrees: ArrayLike) -> FloatArray:
    """Angles in [0, 360)."""
    turned = np.mod(np.asarray(degrees, dtype=np.float64), 360.0)
    # A tiny negative angle is rounded up to 360 by the modulo.
    return np.where(turned == 360.0, 0.0, turned)


def _broadcast(*values: ArrayLike) -> tuple[FloatArray, ...]:
    # PROJ wants arrays of equal length that it may overwrite.
    arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values))
    return tuple(np.array(a, dtype=np.float64) for a in arrays)
