"""Cells over the Earth, in sizes from 27 m to 111 km, and which of them a scope touches.

A row of cells is a part of a degree of latitude; within a degree all rows have the same number of
columns, so that cells are about as wide as high and the last one closes at the antimeridian.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.geo.distance import DEGREE_M, MEAN_RADIUS_M
from mercury.matching.compiling import compiled, inlined

LEVELS = 13  # level 0 has 4,096 rows a degree, 27 m high; each further level half as many
COARSEST = LEVELS - 1
USUAL_LEVEL = 5  # 869 m
MAX_TOPICS = 1 << 17

_DEGREES = np.cos(np.radians(np.abs(np.arange(180) - 89.5)))
# Columns of each level in each degree of latitude from the south.
COLUMNS: NDArray[np.int64] = np.maximum(
    np.floor(360.0 * _DEGREES[None, :] * (4096 >> np.arange(LEVELS))[:, None]), 1.0
).astype(np.int64)


def cell_m(level: int) -> float:
    """The height of a level's cells."""
    return DEGREE_M / (4096 >> level)


@inlined
def row_of(lat: float, level: int) -> int:
    per_degree = 4096 >> level
    return min(int((lat + 90.0) * per_degree), 180 * per_degree - 1)


@inlined
def columns_in(row: int, level: int, columns: Any) -> int:
    return columns[level * 180 + (row >> (12 - level))]


@inlined
def column_of(lon: float, columns: int) -> int:
    column = int((lon + 180.0) * (columns * (1.0 / 360.0)))
    return column if column < columns else 0


@inlined
def key_of(side: int, topic: int, level: int, row: int, column: int) -> int:
    """A number for the cell of a topic on a side, never 0."""
    return ((((topic * 2 + side) * 16 + level) << 20 | row) << 21 | column) + 1


@inlined
def reach_deg(x: float, y: float, lat: float, reach_m: float) -> tuple[float, float]:
    """How many degrees of latitude and of longitude a circle reaches, at most."""
    lat_deg = reach_m * (180.0 / math.pi / MEAN_RADIUS_M * 1.0000001) + 1e-9
    if abs(lat) + lat_deg >= 89.999:
        return lat_deg, 180.0
    ratio = reach_m / math.sqrt(x * x + y * y)
    if ratio > 0.5:  # close to a pole, where the bound below is invalid
        sine = math.sin(reach_m / MEAN_RADIUS_M) * ratio / (reach_m / MEAN_RADIUS_M)
        lon = math.pi if sine >= 1.0 else math.asin(sine)
    else:
        lon = ratio * (1.0 + 0.22 * ratio * ratio)  # no less than the arcsine
    return lat_deg, min(lon * (180.0 / math.pi * 1.0000001) + 1e-9, 180.0)


@inlined
def sine_and_cosine(degrees: float) -> tuple[float, float]:
    """Both, to the last digit but one, in steps that a processor does for several at once."""
    quarter = math.floor(degrees * (1.0 / 90.0) + 0.5)
    angle = (degrees - 90.0 * quarter) * (math.pi / 180.0)  # within an eighth of a turn
    s = angle * angle
    # Their series up to s⁷ and s⁸, by Horner's scheme.
    odd = 1 / 362880 + s * (-1 / 39916800 + s * (1 / 6227020800 - s / 1307674368000))
    odd = -1 / 6 + s * (1 / 120 + s * (-1 / 5040 + s * odd))
    even = -1 / 3628800 + s * (1 / 479001600 + s * (-1 / 87178291200 + s / 20922789888000))
    even = -1 / 2 + s * (1 / 24 + s * (-1 / 720 + s * (1 / 40320 + s * even)))
    sine, cosine = angle * (1.0 + s * odd), 1.0 + s * even
    turns = quarter - 4.0 * math.floor(quarter * 0.25)  # 0, 1, 2 or 3 quarters
    swapped = turns == 1.0 or turns == 3.0
    first = cosine if swapped else sine
    second = sine if swapped else cosine
    return (
        -first if turns >= 2.0 else first,
        -second if turns == 1.0 or turns == 2.0 else second,
    )


@compiled
def on_sphere(lats: Any, lons: Any, points: Any) -> None:
    """Positions as x, y, z in metres."""
    for row in range(len(lats)):
        up, across = sine_and_cosine(lats[row])
        sine, cosine = sine_and_cosine(lons[row])
        points[0, row] = across * cosine * MEAN_RADIUS_M
        points[1, row] = across * sine * MEAN_RADIUS_M
        points[2, row] = up * MEAN_RADIUS_M


@inlined
def arc_m(chord_squared: float) -> float:
    """The way along the sphere between two points, by the square of their chord."""
    chord = math.sqrt(chord_squared)
    if chord < 20_000.0:  # what the series leaves out is below 10 nm
        return chord * (1.0 + chord_squared / (24.0 * MEAN_RADIUS_M * MEAN_RADIUS_M))
    return 2.0 * MEAN_RADIUS_M * math.asin(min(chord / (2.0 * MEAN_RADIUS_M), 1.0))
