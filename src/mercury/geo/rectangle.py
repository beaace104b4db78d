"""Which positions are in a rectangle of latitude and longitude: a box is all there is to it."""

from __future__ import annotations

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box
from mercury.model.area import Rectangle


class PreparedRectangle:
    """A rectangle, with the same face as the other prepared shapes."""

    __slots__ = ("box",)

    def __init__(self, shape: Rectangle) -> None:
        self.box = Box.of_rectangle(shape)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        return self.box.contains(lats, lons)

    def contains_point(self, lat: float, lon: float) -> bool:
        return self.box.contains_point(lat, lon)
