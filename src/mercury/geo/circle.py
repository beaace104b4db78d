"""Which positions are in a circle: a box, then a flat Earth, then chords, then geodesics.

Each step settles nearly all that the one before it left open and costs more for a point.
"""

from __future__ import annotations

import numpy as np

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.geo.distance import WGS84, geodesic_m
from mercury.geo.flat_frame import FlatFrame
from mercury.geo.local_frame import EDGE_M, LocalFrame, chord_limits_squared
from mercury.model.area import Circle


class PreparedCircle:
    """A circle with what does not depend on the positions computed ahead."""

    __slots__ = ("_flat", "_frame", "_inside", "_lat", "_limit_m", "_lon", "_outside", "box")

    def __init__(self, shape: Circle) -> None:
        self._lat, self._lon = shape.center.lat, shape.center.lon
        self._limit_m = shape.radius_m + EDGE_M
        self._inside, self._outside = chord_limits_squared(self._limit_m)
        self._frame = LocalFrame(self._lat, self._lon)
        self.box = Box.of_circle(self._lat, self._lon, shape.radius_m)
        # The corners of the box are √2 away.
        self._flat = FlatFrame.within(self._lat, self._lon, 1.5 * shape.radius_m)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        return self.box.contains_if(self._settle, lats, lons)

    def contains_point(self, lat: float, lon: float) -> bool:
        if not self.box.contains_point(lat, lon):
            return False
        _, _, chord_squared = self._frame.offsets_of_point(lat, lon)
        if chord_squared <= self._inside:
            return True
        if chord_squared > self._outside:
            return False
        return bool(WGS84.inv(self._lon, self._lat, lon, lat)[2] <= self._limit_m)

    def _settle(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        if self._flat is None:
            return self._contains_by_chord(lats, lons)
        north, east = self._flat.offsets(lats, lons)
        distance_squared = north * north + east * east
        inside: BoolArray = distance_squared < self._limit_m**2
        smallest_m = max(self._limit_m - self._flat.error_m, 0.0)
        largest_m = self._limit_m + self._flat.error_m
        undecided = np.flatnonzero(
            (distance_squared >= smallest_m**2) & (distance_squared <= largest_m**2)
        )
        if undecided.size:
            inside[undecided] = self._contains_by_chord(lats[undecided], lons[undecided])
        return inside

    def _contains_by_chord(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        _, _, chord_squared = self._frame.offsets(lats, lons)
        inside: BoolArray = chord_squared <= self._inside
        undecided = np.flatnonzero(~inside & (chord_squared <= self._outside))
        if undecided.size:
            distance_m = geodesic_m(self._lat, self._lon, lats[undecided], lons[undecided])
            inside[undecided] = distance_m <= self._limit_m
        return inside
