"""Boxes of latitude and longitude: the rectangle shape, and the first filter of all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.distance import MEAN_RADIUS_M, SPHERE_ERROR

# Positions looked at in one go: their intermediate arrays stay in the processor's cache.
_BLOCK = 8192
# Meridians that were a turn apart are the same in spite of rounding: 0.1 mm at the equator.
_ROUNDING_DEG = 1e-9


class Box(NamedTuple):
    """South, west, north, east in degrees, edges included; `west > east` crosses ±180°."""

    south: float
    west: float
    north: float
    east: float

    @classmethod
    def of_circle(cls, lat: float, lon: float, radius_m: float) -> Box:
        """A box that contains the geodesic circle, at most about 1 % too large."""
        # 10 µm more than the radius, so that rounding of degrees never cuts a tiny circle.
        angle = (radius_m + 1e-5) * (1.0 + SPHERE_ERROR) / MEAN_RADIUS_M
        south, north = lat - math.degrees(angle), lat + math.degrees(angle)
        if south <= -90.0 or north >= 90.0:
            return cls(max(south, -90.0), -180.0, min(north, 90.0), 180.0)
        # The meridian that touches a small circle does so away from the circle's own parallel.
        sine = min(math.sin(angle) / math.cos(math.radians(lat)), 1.0)
        half_width = math.degrees(math.asin(sine))
        return cls.of_span(south, north, lon - half_width, lon + half_width)

    @classmethod
    def of_span(cls, south: float, north: float, west: float, east: float) -> Box:
        """A box from longitudes that go on beyond ±180°, `west <= east`."""
        if east - west >= 360.0:
            return cls(south, -180.0, north, 180.0)
        return cls(south, _into_range(west), north, _into_range(east))

    @property
    def box(self) -> Box:
        return self  # a box is a shape that is ready for questions

    @property
    def width_deg(self) -> float:
        return self.east - self.west + (360.0 if self.west > self.east else 0.0)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        """Which positions are in the box; NaN is not, nor is what is no latitude or longitude."""
        if self.west > self.east:
            in_width = ((lons >= self.west) & (lons <= 180.0)) | (
                (lons <= self.east) & (lons >= -180.0)
            )
        else:
            in_width = (lons >= self.west) & (lons <= self.east)
            if self.east == 180.0:
                in_width |= lons == -180.0
            if self.west == -180.0:
                in_width |= lons == 180.0
        inside: BoolArray = in_width & (lats >= self.south) & (lats <= self.north)
        # A pole has every longitude.
        for edge in (self.south, self.north):
            if abs(edge) == 90.0:
                inside |= (lats == edge) & (np.abs(lons) <= 180.0)
        return inside

    def contains_if(
        self,
        decide: Callable[[FloatArray, FloatArray], BoolArray],
        lats: FloatArray,
        lons: FloatArray,
    ) -> BoolArray:
        """Which positions are in the box and, as `decide` says of those, in the shape."""
        inside = self.contains(lats, lons)
        near = np.flatnonzero(inside)
        for start in range(0, near.size, _BLOCK):
            block = near[start : start + _BLOCK]
            inside[block] = decide(lats[block], lons[block])
        return inside

    def contains_point(self, lat: float, lon: float) -> bool:
        south, west, north, east = self
        if not (south <= lat <= north and -180.0 <= lon <= 180.0):
            return False
        if west > east:
            in_width = lon >= west or lon <= east
        else:
            in_width = west <= lon <= east or (
                (lon == -180.0 and east == 180.0) or (lon == 180.0 and west == -180.0)
            )
        return in_width or lat == 90.0 or lat == -90.0

    def overlaps(self, other: Box) -> bool:
        if self.south > other.north or other.south > self.north:
            return False
        if (self.north == other.north == 90.0) or (self.south == other.south == -90.0):
            return True  # both touch the same pole
        return any(
            self.west <= other.west + turn + other.width_deg + _ROUNDING_DEG
            and other.west + turn <= self.west + self.width_deg + _ROUNDING_DEG
            for turn in (-360.0, 0.0, 360.0)
        )


def box_of_circles(lats: FloatArray, lons: FloatArray, radii_m: FloatArray) -> Box:
    """A box around circles that follow one another along a connected line."""
    south, north, west, east = 90.0, -90.0, math.inf, -math.inf
    previous = center = float(lons[0])
    whole_parallel = False
    for lat, lon, radius_m in zip(lats.tolist(), lons.tolist(), radii_m.tolist(), strict=True):
        box = Box.of_circle(lat, lon, radius_m)
        center += math.remainder(lon - previous, 360.0)
        previous = lon
        south, north = min(south, box.south), max(north, box.north)
        half_width = box.width_deg / 2.0
        west, east = min(west, center - half_width), max(east, center + half_width)
        whole_parallel |= box.width_deg == 360.0
    if whole_parallel:
        return Box(south, -180.0, north, 180.0)
    return Box.of_span(south, north, west, east)


def _into_range(lon: float) -> float:
    if -180.0 <= lon <= 180.0:
        return lon
    return lon - 360.0 * math.floor((lon + 180.0) / 360.0)
