"""Where a simulated plane lies on the Earth."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mercury.geo import destination, geodesic_inverse
from mercury.geo.arrays import FloatArray
from mercury.model.area import Position


class PlaneFrame:
    """Metres east and north of an origin, to and from WGS84.

    Distance and azimuth from the origin are exact (the azimuthal equidistant projection). Between
    two other points 10 km away the plane's distance is off by millimetres, and its north by a tenth
    of a degree: a circle of the plane is a circle on the Earth.
    """

    def __init__(self, origin: Position) -> None:
        self.origin = origin

    def to_wgs84(self, x_m: ArrayLike, y_m: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of places on the plane."""
        x, y = np.asarray(x_m, dtype=np.float64), np.asarray(y_m, dtype=np.float64)
        azimuth_deg = np.degrees(np.arctan2(x, y))
        return destination(self.origin.lat, self.origin.lon, azimuth_deg, np.hypot(x, y))

    def to_plane(self, lats: ArrayLike, lons: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Places on the plane of latitudes and longitudes."""
        distance_m, azimuth_deg = geodesic_inverse(self.origin.lat, self.origin.lon, lats, lons)
        azimuth = np.radians(azimuth_deg)
        return distance_m * np.sin(azimuth), distance_m * np.cos(azimuth)
