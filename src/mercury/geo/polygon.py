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
from mercury.model.ring import in_plane


class PreparedPolygon:
    """A polygon as a prepared plane geometry, and the whole turns at which to look into it."""

    __slots__ = ("_geometry", "_poles", "_turns_deg", "box")

    def __init__(self, shape: Polygon) -> None:
        exterior = _plane_ring(shape.exterior)
        west, south, east, north = exterior.bounds
        self._geometry = _without_holes(exterior, shape.holes)
        self._turns_deg = _turns_into(exterior, -180.0, 180.0)
        self._poles = [lat for lat in (-90.0, 90.0) if self._touches_parallel(lat)]
        self.box = Box.of_span(south, north, west, east)
        shapely.prepare(self._geometry)
        # GEOS builds its index at the first question; asking now lets threads share it later.
        shapely.intersects_xy(self._geometry, west, south)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        return self.box.contains_if(self._decide, lats, lons)

    def _decide(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        found = np.zeros(lats.size, np.bool_)
        for pole in self._poles:  # which has every longitude
            found |= lats == pole
        for turn_deg in self._turns_deg:
            found |= shapely.intersects_xy(self._geometry, lons + turn_deg, lats)
        return found

    def contains_point(self, lat: float, lon: float) -> bool:
        if not self.box.contains_point(lat, lon):
            return False
        if lat in self._poles:
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
    for hole in holes:
        hole_geometry = _plane_ring(hole)
        west, _, east, _ = hole_geometry.bounds
        # The hole may have been unwrapped a turn away, or lie across the exterior's seam.
        for turn_deg in _turns_into(exterior, west, east):
            geometry = shapely.difference(geometry, translate(hole_geometry, turn_deg))
    return geometry


def _turns_into(figure: BaseGeometry, west: float, east: float) -> list[float]:
    """The whole turns, in degrees, that bring something of these longitudes to the figure's."""
    figure_west, _, figure_east, _ = figure.bounds
    first = math.ceil((figure_west - east) / 360.0)
    last = math.floor((figure_east - west) / 360.0)
    return [360.0 * turn for turn in range(first, last + 1)]


def _plane_ring(ring: Sequence[Position]) -> BaseGeometry:
    xs, ys = in_plane([p.lat for p in ring], [p.lon for p in ring])
    geometry: BaseGeometry = shapely.Polygon(list(zip(xs, ys, strict=True)))
    # Even-odd where the ring crosses itself.
    return geometry if geometry.is_valid else shapely.make_valid(geometry)
