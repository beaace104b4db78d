"""Which tiles a circle around each position touches, where it may meet another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.geo.distance import MEAN_RADIUS_M
from mercury.geo.grid import ROW, Grid, steps_east

# Positions on a border may be counted to either side of it.
_MARGIN_DEG = 1e-9

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Copies(NamedTuple):
    """One row for each position and tile that its circle touches."""

    row: Ints  # of the position
    tile: Ints


def tiles_within(grid: Grid, lat: Floats, lon: Floats, reach_m: float) -> Copies:
    """The tiles (or more) in which something may be within reach of each position."""
    high_deg = np.degrees(reach_m / MEAN_RADIUS_M) + _MARGIN_DEG
    # How far east a circle on the sphere goes; one around a pole goes all around.
    around = np.abs(lat) + high_deg >= 90.0
    share = np.sin(np.radians(high_deg)) / np.cos(np.radians(np.where(around, 0.0, lat)))
    wide_deg = np.degrees(np.arcsin(np.minimum(share, 1.0))) + _MARGIN_DEG

    low = grid.row_of(lat - high_deg)
    at, row = counted(low, grid.row_of(lat + high_deg) - low + 1)
    columns = grid.columns(row)
    west = steps_east(lon[at] - wide_deg[at], columns)
    east = steps_east(lon[at] + wide_deg[at], columns)
    all_of_it = around[at] | (east - west >= columns)
    west = np.where(all_of_it, 0, west)
    count = np.where(all_of_it, columns, east - west + 1)
    cell, column = counted(west, count)
    return Copies(at[cell], row[cell] * ROW + column % columns[cell])


def counted(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """`count` numbers from each of `first` on, and the index of the one they came from."""
    at = np.repeat(np.arange(len(first)), count)
    step = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    return at, first[at] + step
