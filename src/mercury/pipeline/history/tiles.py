"""Web Mercator tiles: how stored records are grouped by place, `zoom-x-y`.

At zoom 12 a tile is about 10 km wide at the equator, 7 km at 45°: a city has a few dozen.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

ZOOM = 12
NOWHERE = "none"  # the tile of rows without a position
# Longer lists of tiles prune nothing that a scan would not skip as fast.
MOST_TILES = 1024

_SIDE = 1 << ZOOM
_EDGE_LAT_DEG = math.degrees(math.atan(math.sinh(math.pi)))  # the map is a square


def tile_numbers(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    """A number for the tile of each position; −1 where a coordinate is NaN."""
    somewhere = ~(np.isnan(lat) | np.isnan(lon))
    phi = np.radians(np.clip(np.where(somewhere, lat, 0.0), -_EDGE_LAT_DEG, _EDGE_LAT_DEG))
    east = (np.where(somewhere, lon, 0.0) + 180.0) / 360.0
    south = (1.0 - np.arcsinh(np.tan(phi)) / math.pi) / 2.0
    return np.where(somewhere, _step(east) * _SIDE + _step(south), -1)


def tile_of(number: int) -> str:
    """The name of a tile by its number."""
    if number < 0:
        return NOWHERE
    x, y = divmod(int(number), _SIDE)
    return f"{ZOOM}-{x}-{y}"


def _step(share: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.floor(share * _SIDE), 0, _SIDE - 1).astype(np.int64)


def tiles_over(south: float, west: float, north: float, east: float) -> list[str] | None:
    """The tiles that a box touches, `west > east` crosses ±180°; None if these are very many."""
    corners = tile_numbers(np.array([north, south]), np.array([west, east]))
    (first, low), (last, high) = (divmod(int(corner), _SIDE) for corner in corners)
    # One more on each side: a position on an edge may be in either tile.
    first, last, low, high = first - 1, last + 1, max(low - 1, 0), min(high + 1, _SIDE - 1)
    if west > east:
        last += _SIDE
    if (last - first + 1) * (high - low + 1) > MOST_TILES:
        return None
    columns = sorted({x % _SIDE for x in range(first, last + 1)})
    return [f"{ZOOM}-{x}-{y}" for x in columns for y in range(low, high + 1)]


def tile_centre(name: str) -> tuple[float, float] | None:
    """Latitude and longitude of a tile's centre; None if it is not a tile."""
    zoom, _, rest = name.partition("-")
    x, _, y = rest.partition("-")
    if zoom != str(ZOOM) or not (x.isdecimal() and y.isdecimal()):
        return None
    up = math.pi * (1.0 - 2.0 * (int(y) + 0.5) / _SIDE)
    return math.degrees(math.atan(math.sinh(up))), (int(x) + 0.5) / _SIDE * 360.0 - 180.0
