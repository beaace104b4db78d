"""Geometry on the WGS84 ellipsoid: arrays in, arrays out."""

from mercury.geo.containment import contains, contains_point
from mercury.geo.distance import destination, geodesic_inverse, geodesic_m, haversine_m
from mercury.geo.outline import bounding_circle, bounds
from mercury.geo.overlap import overlaps

__all__ = [
    "bounding_circle",
    "bounds",
    "contains",
    "contains_point",
    "destination",
    "geodesic_inverse",
    "geodesic_m",
    "haversine_m",
    "overlaps",
]
