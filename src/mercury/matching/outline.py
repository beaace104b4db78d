"""A polygon for the kernel: edges relative to a centre, and a circle that encloses them."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mercury.geo.distance import MEAN_RADIUS_M, haversine_m
from mercury.model.area import Polygon
from mercury.model.errors import MatchingError
from mercury.model.ring import unwrap_longitudes


class Outline(NamedTuple):
    """Edges as (lat, lon, lat, lon), longitudes counted from the middle's."""

    edges: NDArray[np.float64]
    lat: float
    lon: float
    radius_m: float
    centre: NDArray[np.float64]

    @classmethod
    def of(cls, polygon: Polygon) -> Self:
        """The outline of a polygon; raises for one that goes round a pole."""
        lons, turns = unwrap_longitudes([corner.lon for corner in polygon.exterior])
        if turns:
            raise MatchingError("a scope that goes round a pole is not supported", "scope")
        lats = [corner.lat for corner in polygon.exterior]
        lat, lon = (min(lats) + max(lats)) / 2.0, (min(lons) + max(lons)) / 2.0
        corners = [(a, b) for a in (min(lats), max(lats)) for b in (min(lons), max(lons))]
        radius_m = max(float(haversine_m(lat, lon, *corner)) for corner in corners)
        edges = [_edges(lats, [east - lon for east in lons])]
        for hole in polygon.holes:
            inner, _ = unwrap_longitudes([corner.lon for corner in hole])
            turn = 360.0 * round((lon - (min(inner) + max(inner)) / 2.0) / 360.0)
            edges.append(_edges([c.lat for c in hole], [east + turn - lon for east in inner]))
        lon = (lon + 180.0) % 360.0 - 180.0
        phi, along = math.radians(lat), math.radians(lon)
        centre = np.array(
            [math.cos(phi) * math.cos(along), math.cos(phi) * math.sin(along), math.sin(phi)]
        )
        return cls(np.concatenate(edges), lat, lon, radius_m, centre * MEAN_RADIUS_M)


def _edges(lats: list[float], lons: list[float]) -> NDArray[np.float64]:
    ring = np.column_stack([lats, lons])
    return np.concatenate([ring, np.roll(ring, -1, axis=0)], axis=1)
