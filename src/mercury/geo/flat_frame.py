"""A small part of the Earth laid flat with multiplications alone: the first, rough look."""

from __future__ import annotations

import math

import numpy as np

from mercury.geo.arrays import FloatArray
from mercury.geo.distance import MEAN_RADIUS_M
from mercury.geo.local_frame import ECCENTRICITY_SQUARED, SEMI_MAJOR_M

_LARGEST_ERROR = 0.3


class FlatFrame:
    """North and east of positions within reach of an origin, good to `error_m`.

    These are the geodesic distance and azimuth as plane coordinates, to second order.
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
