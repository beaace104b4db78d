"""Who is in an area: many positions at once, or one."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.geo.corridor import PreparedCorridor
from mercury.geo.oval import PreparedOval
from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Rectangle,
    Shape,
)


class PreparedShape(Protocol):
    """A shape with what does not depend on the positions computed ahead."""

    @property
    def box(self) -> Box:
        """Contains the shape, not always tightly."""

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        """Which of the positions, given as flat arrays, are inside."""

    def contains_point(self, lat: float, lon: float) -> bool:
        """Whether one position is inside."""


# A service sees the same areas again and again: its coverage, repeated alerts, subscriptions.
@lru_cache(maxsize=1024)
def prepare(shape: Shape) -> PreparedShape:
    """The shape made ready; equal shapes share one preparation."""
    match shape:
        case Circle():
            return PreparedOval(shape.center, shape.radius_m, shape.radius_m)
        case Ellipse():
            return PreparedOval(
                shape.center, shape.semi_major_m, shape.semi_minor_m, shape.azimuth_deg
            )
        case Rectangle():
            return Box(shape.south, shape.west, shape.north, shape.east)
        case Polygon():
            from mercury.geo.polygon import PreparedPolygon  # with shapely, which not all need

            return PreparedPolygon(shape)
        case Corridor():
            return PreparedCorridor(shape)


def contains(
    area: Area | Shape,
    lats: ArrayLike,
    lons: ArrayLike,
    headings: ArrayLike | None = None,
    now_us: int | None = None,
) -> BoolArray:
    """Which positions, in degrees, are in the area; edges belong to it.

    A NaN position is in no area. A heading that is NaN or not given is unknown and passes every
    heading sector: better one warning too many than one too few. Without `now_us` the area's
    validity is not looked at.
    """
    lats = np.asarray(lats, dtype=np.float64)
    lons = np.asarray(lons, dtype=np.float64)
    if lats.shape != lons.shape:
        raise ValueError(f"lats and lons differ in shape: {lats.shape} and {lons.shape}")
    shape, heading = (area.shape, area.heading) if isinstance(area, Area) else (area, None)
    if isinstance(area, Area) and not _is_valid(area, now_us):
        return np.zeros(lats.shape, dtype=np.bool_)
    inside = prepare(shape).contains(lats.ravel(), lons.ravel()).reshape(lats.shape)
    if heading is not None and headings is not None:
        inside &= _in_sector(heading, np.asarray(headings, dtype=np.float64))
    return inside


def contains_point(
    area: Area | Shape,
    lat: float,
    lon: float,
    heading: float | None = None,
    now_us: int | None = None,
) -> bool:
    """Whether one position is in the area, by the same rules as `contains`."""
    if isinstance(area, Area):
        if not _is_valid(area, now_us):
            return False
        sector = area.heading
        if sector is not None and heading is not None and math.isfinite(heading):
            turned = math.remainder(heading - sector.center_deg, 360.0)
            if abs(turned) > sector.half_width_deg:
                return False
        area = area.shape
    return prepare(area).contains_point(lat, lon)


def _is_valid(area: Area, now_us: int | None) -> bool:
    if now_us is None:
        return True
    if area.valid_from_us is not None and now_us < area.valid_from_us:
        return False
    return area.valid_until_us is None or now_us < area.valid_until_us


def _in_sector(sector: HeadingSector, headings: FloatArray) -> BoolArray:
    known = np.isfinite(headings)
    # 0 in place of the unknown ones, because a remainder of infinity warns.
    turned = np.abs(np.where(known, headings, 0.0) - sector.center_deg) % 360.0
    return ~known | (np.minimum(turned, 360.0 - turned) <= sector.half_width_deg)
