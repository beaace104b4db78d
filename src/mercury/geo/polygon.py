"""Which positions are in a polygon, as a plane figure over unwrapped longitudes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import shapely
from shapely.affinity import translate
from shapely.geometry.base import BaseGeometry

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.model.area import Polygon, Position
from mercury.model.ring import nearer_pole_deg, unwrap_longitudes


class PreparedPolygon:
    """A polygon as a prepared plane geometry, and the whole turns at which to look into it."""

    __slots__ = ("_geometry", "_north_pole", "_south_pole", "_turns_deg", "box")

    def __init__(self, shape: Polygon) -> None:
        exterior = _plane_ring(shape.exterior)
        west, south, east, north = exterior.bounds
        self._geometry = _without_holes(exterior, shape.holes)
        first = math.ceil((west - 180.0) / 360.0)
        last = math.floor((east + 180.0) / 360.0)
        self._turns_deg = tuple(360.0 * turn for turn in range(first, last + 1))
        self._north_pole = self._touches_parallel(90.0)
        self._south_pole = self._touches_parallel(-90.0)
        self.box = Box.of_span(south, north, west, east)
        shapely.prepare(self._geometry)
        # GEOS builds its index at the first question; asking now lets threads share it later.
        shapely.intersects_xy(self._geometry, west, south)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        return self.box.contains_if(self._settle, lats, lons)

    def _settle(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        # A pole has every longitude.
        found: BoolArray = (lats == 90.0) if self._north_pole else np.zeros(lats.size, np.bool_)
        if self._south_pole:
            found |= lats == -90.0
        for turn_deg in self._turns_deg:
            found |= shapely.intersects_xy(self._geometry, lons + turn_deg, lats)
        return found

    def contains_point(self, lat: float, lon: float) -> bool:
        if not self.box.contains_point(lat, lon):
            return False
        if (lat == 90.0 and self._north_pole) or (lat == -90.0 and self._south_pole):
            return True
        return any(
            bool(shapely.intersects_xy(self._geometry, lon + turn_deg, lat))
            for turn_deg in self._turns_deg
        )

    def _touches_parallel(self, lat: float) -> bool:
        west, _, east, _ = self._geometry.bounds
        if self._geometry.is_empty:
            return False
        parallel = shapely.LineString([(west - 1.0, lat), (east + 1.0, lat)])
        return bool(self._geometry.intersects(parallel))


def _without_holes(exterior: BaseGeometry, holes: Sequence[Sequence[Position]]) -> BaseGeometry:
    geometry = exterior
    west, _, east, _ = exterior.bounds
    for hole in holes:
        hole_geometry = _plane_ring(hole)
        hole_west, _, hole_east, _ = hole_geometry.bounds
        # The hole may have been unwrapped a turn away, or lie across the exterior's seam.
        first = math.ceil((west - hole_east) / 360.0)
        last = math.floor((east - hole_west) / 360.0)
        for turn in range(first, last + 1):
            geometry = shapely.difference(geometry, translate(hole_geometry, 360.0 * turn))
    return geometry


def _plane_ring(ring: Sequence[Position]) -> BaseGeometry:
    lats = [p.lat for p in ring]
    xs, turns = unwrap_longitudes([p.lon for p in ring])
    if turns:
        pole = nearer_pole_deg(lats)
        end = xs[0] + 360.0 * turns
        xs = [*xs, end, end, xs[0]]
        lats = [*lats, lats[0], pole, pole]
    geometry: BaseGeometry = shapely.Polygon(list(zip(xs, lats, strict=True)))
    # Even-odd where the ring crosses itself.
    return geometry if geometry.is_valid else shapely.make_valid(geometry)
