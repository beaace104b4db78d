"""Local frames: one that measures with straight lines through the Earth, and a rough flat one.

The straight line (chord) between two positions is cheap to compute and fixes their geodesic
distance almost exactly: a geodesic bends no more than 1/`_SHARPEST_M` and no less than
1/`_FLATTEST_M`, so it is between two arcs over the same chord (Schur's comparison theorem). For
10 km the two differ by some 20 µm. Points that this cannot settle go to the exact geodesic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mercury.geo.arrays import FloatArray
from mercury.geo.distance import MEAN_RADIUS_M

# WGS84, as PROJ has it.
SEMI_MAJOR_M = 6378137.0
ECCENTRICITY_SQUARED = 0.00669437999014133
_SEMI_MINOR_M = 6356752.314245179
# The extreme radii of curvature of WGS84: along the equator's meridian, and at the poles.
_SHARPEST_M = _SEMI_MINOR_M**2 / SEMI_MAJOR_M
_FLATTEST_M = SEMI_MAJOR_M**2 / _SEMI_MINOR_M
# Beyond this chords say too little: near the antipode geodesics of all directions meet.
_LONGEST_BY_CHORD_M = 15_000_000.0

# Being inside includes the edge: a point computed to lie on it is inside in spite of rounding.
EDGE_M = 1e-6
# Chord coordinates are rounded to some nanometres.
_ROUNDING_M = 2e-6
# Of a flat frame, as a part of its reach.
_LARGEST_ERROR = 0.3


def chord_limits_squared(distance_m: float) -> tuple[float, float]:
    """Squared chords up to which a point is certainly within the distance, and beyond which not."""
    within = min(distance_m, _LONGEST_BY_CHORD_M)
    certainly_inside = 2.0 * _SHARPEST_M * math.sin(within / (2.0 * _SHARPEST_M)) - _ROUNDING_M
    if distance_m > _LONGEST_BY_CHORD_M:
        return certainly_inside**2, math.inf
    # A geodesic also twists a little, which lengthens its chord by less than this.
    twist = 1.0 + 1e-6 * (distance_m / MEAN_RADIUS_M) ** 2
    certainly_outside = 2.0 * _FLATTEST_M * math.sin(distance_m / (2.0 * _FLATTEST_M)) * twist
    return max(certainly_inside, 0.0) ** 2, (certainly_outside + _ROUNDING_M) ** 2


class LocalFrame:
    """East and north about an origin, for positions in degrees."""

    __slots__ = ("_axis_m", "_cos_lat", "_height_m", "_lon", "_sin_lat")

    def __init__(self, lat: float, lon: float) -> None:
        self._lon = lon
        self._sin_lat = math.sin(math.radians(lat))
        self._cos_lat = math.cos(math.radians(lat))
        normal = SEMI_MAJOR_M / math.sqrt(1.0 - ECCENTRICITY_SQUARED * self._sin_lat**2)
        self._axis_m = normal * self._cos_lat  # distance from the Earth's axis
        self._height_m = normal * (1.0 - ECCENTRICITY_SQUARED) * self._sin_lat  # above the equator

    def offsets(
        self, lats: FloatArray, lons: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """East, north and squared chord, in metres, of positions as seen from the origin."""
        return self._offsets(lats, lons, np)

    def offsets_of_point(self, lat: float, lon: float) -> tuple[float, float, float]:
        """The same for one position, without arrays."""
        return self._offsets(lat, lon, math)

    def _offsets(self, lat: Any, lon: Any, functions: Any) -> tuple[Any, Any, Any]:
        phi, turned = functions.radians(lat), functions.radians(lon - self._lon)
        sine = functions.sin(phi)
        normal = SEMI_MAJOR_M / functions.sqrt(1.0 - ECCENTRICITY_SQUARED * sine * sine)
        axis = normal * functions.cos(phi)
        outward = axis * functions.cos(turned) - self._axis_m
        east = axis * functions.sin(turned)
        up = normal * ((1.0 - ECCENTRICITY_SQUARED) * sine) - self._height_m
        north = up * self._cos_lat - outward * self._sin_lat
        return east, north, outward * outward + east * east + up * up


class FlatFrame:
    """North and east of positions within reach of an origin, good to `error_m`.

    These are the geodesic distance and azimuth as plane coordinates, to second order, by
    multiplications alone: the first, rough look.
    """

    __slots__ = ("_bend_m", "_east_m", "_lat", "_lon", "_north_m", "_shrink_m", "error_m")

    def __init__(self, lat: float, lon: float, error_m: float) -> None:
        self._lat, self._lon = lat, lon
        phi = math.radians(lat)
        curvature = 1.0 - ECCENTRICITY_SQUARED * math.sin(phi) ** 2
        normal_m = SEMI_MAJOR_M / math.sqrt(curvature)
        degree = math.radians(1.0)
        self._north_m = normal_m * (1.0 - ECCENTRICITY_SQUARED) / curvature * degree
        self._east_m = normal_m * math.cos(phi) * degree
        # Meridians draw together to the north, and parallels bend towards it.
        self._shrink_m = normal_m * math.sin(phi) * degree**2
        self._bend_m = self._shrink_m * math.cos(phi) / 2.0
        self.error_m = error_m

    @classmethod
    def within(cls, lat: float, lon: float, reach_m: float) -> FlatFrame | None:
        """A frame for positions within reach, or nothing where the Earth is too round for it."""
        reach = reach_m / MEAN_RADIUS_M
        cosine = math.cos(min(math.radians(abs(lat)) + reach, math.pi / 2.0))
        # What is neglected: the sphere's third order, and how curvature changes with latitude.
        error = 3.0 * reach**2 / max(cosine, 1e-9) ** 2 + 0.02 * reach
        return cls(lat, lon, reach_m * error + 1e-5) if error < _LARGEST_ERROR else None

    def offsets(self, lats: FloatArray, lons: FloatArray) -> tuple[FloatArray, FloatArray]:
        """North and east in metres; of use only for positions in the box of the reach."""
        up = lats - self._lat
        across = lons - self._lon
        if abs(self._lon) > 90.0:
            # Beyond ±180° a neighbour is a whole turn away in degrees.
            across = np.where(np.abs(across) > 180.0, across - np.copysign(360.0, across), across)
        north = up * self._north_m + across * across * self._bend_m
        east = across * (self._east_m - self._shrink_m * up)
        return north, east
