"""Which positions are in an ellipse."""

from __future__ import annotations

import math

import numpy as np

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.geo.distance import MEAN_RADIUS_M, WGS84, geodesic_inverse
from mercury.geo.flat_frame import FlatFrame
from mercury.geo.local_frame import EDGE_M, LocalFrame, chord_limits_squared
from mercury.model.area import Ellipse

# Up to here the chord's direction stands for the geodesic's azimuth within the margin below.
_FARTHEST_BY_CHORD_M = 2_000_000.0


class PreparedEllipse:
    """An ellipse with what does not depend on the positions computed ahead."""

    __slots__ = (
        "_cos",
        "_flat",
        "_frame",
        "_inside",
        "_lat",
        "_lon",
        "_outside",
        "_semi_major_m",
        "_semi_minor_m",
        "_sin",
        "box",
    )

    def __init__(self, shape: Ellipse) -> None:
        self._lat, self._lon = shape.center.lat, shape.center.lon
        self._semi_major_m = shape.semi_major_m + EDGE_M
        self._semi_minor_m = shape.semi_minor_m + EDGE_M
        self._cos = math.cos(math.radians(shape.azimuth_deg))
        self._sin = math.sin(math.radians(shape.azimuth_deg))
        self._frame = LocalFrame(self._lat, self._lon)
        self._flat = FlatFrame.within(self._lat, self._lon, 1.5 * shape.semi_major_m)
        self._inside, _ = chord_limits_squared(self._semi_minor_m)
        _, self._outside = chord_limits_squared(self._semi_major_m)
        self.box = Box.of_circle(self._lat, self._lon, shape.semi_major_m)

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
        azimuth_deg, _, distance_m = WGS84.inv(self._lon, self._lat, lon, lat)
        azimuth = math.radians(azimuth_deg)
        north, east = distance_m * math.cos(azimuth), distance_m * math.sin(azimuth)
        along = (north * self._cos + east * self._sin) / self._semi_major_m
        across = (east * self._cos - north * self._sin) / self._semi_minor_m
        return bool(along * along + across * across <= 1.0)

    def _settle(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        if self._flat is None:
            return self._contains_by_chord(lats, lons)
        size = self._size(*self._flat.offsets(lats, lons))
        inside = size < 1.0
        margin = self._flat.error_m / self._semi_minor_m
        undecided = np.flatnonzero(np.abs(size - 1.0) <= margin)
        if undecided.size:
            inside[undecided] = self._contains_by_chord(lats[undecided], lons[undecided])
        return inside

    def _contains_by_chord(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        east, north, chord_squared = self._frame.offsets(lats, lons)
        inside: BoolArray = chord_squared <= self._inside
        near = np.flatnonzero(~inside & (chord_squared <= self._outside))
        east, north, chord_squared = east[near], north[near], chord_squared[near]
        # Distance and azimuth from the chord: each is off by less than e²/12 · (s/R)² in relative
        # terms and in radians. The margin is twice their sum, in units of the ellipse.
        half_sine = np.minimum(np.sqrt(chord_squared) / (2.0 * MEAN_RADIUS_M), 1.0)
        distance_m = 2.0 * MEAN_RADIUS_M * np.arcsin(half_sine)
        stretch = distance_m / np.maximum(np.hypot(east, north), 1e-9)
        size = self._size(north * stretch, east * stretch)
        margin = 2.5e-3 * distance_m**3 / (MEAN_RADIUS_M**2 * self._semi_minor_m) + 1e-9
        margin += 2.0 * EDGE_M / self._semi_minor_m
        margin[distance_m > _FARTHEST_BY_CHORD_M] = np.inf
        inside[near] = size < 1.0
        exact = near[np.abs(size - 1.0) <= margin]
        if exact.size:
            inside[exact] = self._contains_exactly(lats[exact], lons[exact])
        return inside

    def _contains_exactly(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        distance_m, azimuth_deg = geodesic_inverse(self._lat, self._lon, lats, lons)
        azimuth = np.radians(azimuth_deg)
        return self._size(distance_m * np.cos(azimuth), distance_m * np.sin(azimuth)) <= 1.0

    def _size(self, north: FloatArray, east: FloatArray) -> FloatArray:
        """How large the ellipse through these offsets is, in units of this one."""
        along = (north * self._cos + east * self._sin) / self._semi_major_m
        across = (east * self._cos - north * self._sin) / self._semi_minor_m
        return np.hypot(along, across)
