"""Shapes made ready for many questions, and remembered."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.geo.corridor import PreparedCorridor
from mercury.geo.oval import PreparedOval
from mercury.model.area import Circle, Corridor, Ellipse, Polygon, Rectangle, Shape


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
            return Box.of_rectangle(shape)
        case Polygon():
            from mercury.geo.polygon import PreparedPolygon  # with shapely, which not all need

            return PreparedPolygon(shape)
        case Corridor():
            return PreparedCorridor(shape)
