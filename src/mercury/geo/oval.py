"""Which positions are in an ellipse or a circle: a box, a flat Earth, then chords, then geodesics.

Each step settles nearly all that the one before it left open and costs more for a point.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.geo.distance import MEAN_RADIUS_M, geodesic_inverse, geodesic_inverse_of_point
from mercury.geo.local_frame import EDGE_M, FlatFrame, LocalFrame, chord_limits_squared
from mercury.model.area import Position

# Up to here the chord's direction stands for the geodesic's azimuth within the margin below.
_FARTHEST_BY_CHORD_M = 2_000_000.0

_Number = TypeVar("_Number", float, FloatArray)


class PreparedOval:
    """An ellipse, or a circle, with what does not depend on the positions computed ahead."""

    def __init__(
        self, center: Position, semi_major_m: float, semi_minor_m: float, azimuth_deg: float = 0.0
    ) -> None:
        self._lat, self._lon = center.lat, center.lon
        self._semi_minor_m = semi_minor_m + EDGE_M
        self._scale = 1.0 / self._semi_minor_m**2
        self._cos = math.cos(math.radians(azimuth_deg))
        self._sin = math.sin(math.radians(azimuth_deg))
        self._squeeze = self._semi_minor_m / (semi_major_m + EDGE_M)
        self._frame = LocalFrame(self._lat, self._lon)
        # The corners of the box are √2 away.
        self._flat = FlatFrame.within(self._lat, self._lon, 1.5 * semi_major_m)
        self._inside, _ = chord_limits_squared(self._semi_minor_m)
        _, self._outside = chord_limits_squared(semi_major_m + EDGE_M)
        self.box = Box.of_circle(self._lat, self._lon, semi_major_m)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        return self.box.contains_if(self._decide, lats, lons)

    def contains_point(self, lat: float, lon: float) -> bool:
        if not self.box.contains_point(lat, lon):
            return False
        _, _, chord_squared = self._frame.offsets_of_point(lat, lon)
        if chord_squared <= self._inside:
            return True
        if chord_squared > self._outside:
            return False
        distance_m, azimuth_deg = geodesic_inverse_of_point(self._lat, self._lon, lat, lon)
        azimuth = math.radians(azimuth_deg)
        north, east = distance_m * math.cos(azimuth), distance_m * math.sin(azimuth)
        return self._size_squared(north, east) <= 1.0

    def _decide(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        if self._flat is None:
            return self._contains_by_chord(lats, lons)
        size_squared = self._size_squared(*self._flat.offsets(lats, lons))
        inside: BoolArray = size_squared < 1.0
        undecided = np.flatnonzero(_near_1(size_squared, self._flat.error_m / self._semi_minor_m))
        if undecided.size:
            inside[undecided] = self._contains_by_chord(lats[undecided], lons[undecided])
        return inside

    def _contains_by_chord(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        east, north, chord_squared = self._frame.offsets(lats, lons)
        inside: BoolArray = chord_squared <= self._inside
        near = np.flatnonzero(~inside & (chord_squared <= self._outside))
        if not near.size:
            return inside
        east, north, chord_squared = east[near], north[near], chord_squared[near]
        # Distance and azimuth from the chord: each is off by less than e²/12 · (s/R)² in relative
        # terms and in radians. The margin is twice their sum, in units of the ellipse.
        half_sine = np.minimum(np.sqrt(chord_squared) / (2.0 * MEAN_RADIUS_M), 1.0)
        distance_m = 2.0 * MEAN_RADIUS_M * np.arcsin(half_sine)
        stretch = distance_m / np.maximum(np.hypot(east, north), 1e-9)
        size_squared = self._size_squared(north * stretch, east * stretch)
        margin = 2.5e-3 * distance_m**3 / (MEAN_RADIUS_M**2 * self._semi_minor_m) + 1e-9
        margin += 2.0 * EDGE_M / self._semi_minor_m
        margin[distance_m > _FARTHEST_BY_CHORD_M] = np.inf
        inside[near] = size_squared < 1.0
        exact = near[_near_1(size_squared, margin)]
        if exact.size:
            inside[exact] = self._contains_exactly(lats[exact], lons[exact])
        return inside

    def _contains_exactly(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        distance_m, azimuth_deg = geodesic_inverse(self._lat, self._lon, lats, lons)
        azimuth = np.radians(azimuth_deg)
        return self._size_squared(distance_m * np.cos(azimuth), distance_m * np.sin(azimuth)) <= 1.0

    def _size_squared(self, north: _Number, east: _Number) -> _Number:
        """How large the ellipse through these offsets is, in units of this one, squared."""
        if self._squeeze != 1.0:  # no circle
            along = (north * self._cos + east * self._sin) * self._squeeze
            north, east = along, east * self._cos - north * self._sin
        return (north * north + east * east) * self._scale


def _near_1(size_squared: FloatArray, margin: float | FloatArray) -> BoolArray:
    smallest, largest = np.maximum(1.0 - margin, 0.0), 1.0 + margin
    found: BoolArray = (size_squared >= smallest**2) & (size_squared <= largest**2)
    return found
