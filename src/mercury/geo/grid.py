"""A grid of nearly square cells over the Earth, in arithmetic that Spark's columns can do too.

Rows are bands of latitude `step_deg` high, counted from the south pole; each is cut into a whole
number of columns, so that the last one closes at the antimeridian:

    row     = least(floor((lat + 90) / step_deg), rows - 1)
    columns = greatest(1, floor(360 * cos(radians((row + 0.5) * step_deg - 90)) / step_deg))
    column  = floor((lon + 180) / 360 * columns) % columns
    cell    = row * 4294967296 + column
    sector  = floor((heading_deg + 22.5) / 45) % 8
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.geo.arrays import FloatArray
from mercury.geo.distance import MEAN_RADIUS_M
from mercury.model.errors import AreaError

SECTORS = 8
SECTOR_DEG = 360.0 / SECTORS
ROW = 1 << 32  # what a row counts for in a cell's number

MIN_CELL_M, MAX_CELL_M = 10.0, 100_000.0


@dataclass(frozen=True)
class Grid:
    """Cells about `cell_m` wide and high."""

    cell_m: float

    def __post_init__(self) -> None:
        if not MIN_CELL_M <= self.cell_m <= MAX_CELL_M:
            raise AreaError(
                f"cell_m {self.cell_m:g} is not between {MIN_CELL_M:g} and {MAX_CELL_M:g}"
            )

    @cached_property
    def step_deg(self) -> float:
        return math.degrees(self.cell_m / MEAN_RADIUS_M)

    @cached_property
    def rows(self) -> int:
        return math.ceil(180.0 / self.step_deg)

    def columns(self, rows: ArrayLike) -> NDArray[np.int64]:
        """How many cells each of the rows has."""
        middle = np.radians((np.asarray(rows, dtype=np.float64) + 0.5) * self.step_deg - 90.0)
        columns = np.floor(360.0 * np.cos(middle) / self.step_deg)
        return np.maximum(columns, 1.0).astype(np.int64)

    def cell_of(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.int64]:
        """The numbers of the cells that positions are in."""
        row = self.row_of(lats)
        columns = self.columns(row)
        return np.asarray(row * ROW + steps_east(lons, columns) % columns, dtype=np.int64)

    def row_of(self, lats: ArrayLike) -> NDArray[np.int64]:
        """The rows that latitudes are in; beyond a pole, the row at it."""
        row = np.floor((np.asarray(lats, dtype=np.float64) + 90.0) / self.step_deg)
        return np.clip(row, 0, self.rows - 1).astype(np.int64)

    def centre_of(self, cells: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of the middles of cells."""
        row, column = np.divmod(np.asarray(cells, dtype=np.int64), ROW)
        south = row * self.step_deg - 90.0
        north = np.minimum(south + self.step_deg, 90.0)
        lons = (column + 0.5) * 360.0 / self.columns(row) - 180.0
        return np.asarray((south + north) / 2.0), np.asarray(lons)

    def neighbours(self, cell: int) -> frozenset[int]:
        """The cells that share an edge or a corner with this one."""
        row, column = divmod(cell, ROW)
        own = _columns_of(self, row)
        found = {row * ROW + (column + step) % own for step in (-1, 1)}
        # A row at a pole has at most three cells, so all that meet there are found by now.
        for other_row in (row - 1, row + 1):
            if not 0 <= other_row < self.rows:
                continue
            # In whole numbers, so that a corner is met exactly: this cell spans
            # [column / own, (column + 1) / own] of the turn, the others likewise.
            other = _columns_of(self, other_row)
            first = -(-column * other // own) - 1
            last = (column + 1) * other // own
            found |= {other_row * ROW + c % other for c in range(first, last + 1)}
        return frozenset(found - {cell})

    def is_cell(self, cell: int) -> bool:
        """Whether there is a cell of this number."""
        row, column = divmod(cell, ROW)
        return 0 <= row < self.rows and column < _columns_of(self, row)


def steps_east(lons: ArrayLike, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns from -180° to longitudes, in rows of so many; not yet taken around the Earth."""
    share = (np.asarray(lons, dtype=np.float64) + 180.0) / 360.0
    return np.floor(share * columns).astype(np.int64)


@lru_cache(maxsize=1 << 16)
def _columns_of(grid: Grid, row: int) -> int:
    return int(grid.columns(row))
