"""Cells: each position in one, neighbours that touch, also at the antimeridian and the poles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from geo.oracles import sector_of
from geo.strategies import lats, lons
from hypothesis import assume, given
from hypothesis import strategies as st

from mercury.geo import geodesic_m
from mercury.geo.grid import ROW, Grid
from mercury.model.errors import AreaError

grids = st.sampled_from([50.0, 200.0, 1000.0, 7777.0]).map(Grid)


def span(grid: Grid, cell: int) -> tuple[float, float, float, float]:
    """South, north, and from and to in parts of a turn."""
    row, column = divmod(cell, ROW)
    south = row * grid.step_deg - 90.0
    columns = int(grid.columns(row))
    return south, min(south + grid.step_deg, 90.0), column / columns, (column + 1) / columns


@given(grids, lats, lons)
def test_a_position_is_in_its_cell_and_near_its_centre(grid: Grid, lat: float, lon: float) -> None:
    cell = int(grid.cell_of(lat, lon))
    assert grid.is_cell(cell)
    south, north, first, last = span(grid, cell)
    assert south - 1e-9 <= lat <= north + 1e-9
    turn = (lon + 180.0) / 360.0 % 1.0
    assert first - 1e-12 <= turn <= last + 1e-12 or abs(lat) == 90.0
    centre_lat, centre_lon = grid.centre_of(cell)
    assert int(grid.cell_of(centre_lat, centre_lon)) == cell
    if abs(lat) < 89:
        assert float(geodesic_m(lat, lon, centre_lat, centre_lon)) < grid.cell_m * 0.85


@given(grids, lats, lons)
def test_neighbours_are_mutual_and_touch(grid: Grid, lat: float, lon: float) -> None:
    cell = int(grid.cell_of(lat, lon))
    found = grid.neighbours(cell)
    assert cell not in found
    for other in found:
        assert grid.is_cell(other)
        assert cell in grid.neighbours(other)
    south, north, first, last = span(grid, cell)
    columns_near = {  # all that could touch
        row * ROW + column % int(grid.columns(row))
        for row in range(max(cell // ROW - 2, 0), min(cell // ROW + 3, grid.rows))
        for column in _columns_around(first, last, int(grid.columns(row)))
    } - {cell}
    touching = set()
    for other in columns_near:
        low, high, start, end = span(grid, other)
        vertical = low <= north + 1e-9 and high >= south - 1e-9
        horizontal = any(
            start + turn <= last + 1e-12 and end + turn >= first - 1e-12 for turn in (-1, 0, 1)
        )
        at_the_pole = cell // ROW == other // ROW in (0, grid.rows - 1)
        if (vertical and horizontal) or at_the_pole:
            touching.add(other)
    assert found == touching


def _columns_around(first: float, last: float, columns: int) -> range:
    if columns <= 12:
        return range(columns)
    return range(math.floor(first * columns) - 3, math.ceil(last * columns) + 3)


def test_the_antimeridian_is_no_border() -> None:
    grid = Grid(200.0)
    west, east = int(grid.cell_of(51.0, 179.9999)), int(grid.cell_of(51.0, -179.9999))
    assert east in grid.neighbours(west)
    assert int(grid.cell_of(51.0, 180.0)) == int(grid.cell_of(51.0, -180.0)) == east


def test_many_at_once_and_one_by_one_are_the_same() -> None:
    rng = np.random.default_rng(20261117)
    some_lats, some_lons = rng.uniform(-90, 90, 1000), rng.uniform(-180, 180, 1000)
    grid = Grid(200.0)
    cells = grid.cell_of(some_lats, some_lons)
    one_by_one = [int(grid.cell_of(a, b)) for a, b in zip(some_lats, some_lons, strict=True)]
    assert cells.tolist() == one_by_one
    assert cells.dtype == np.int64


@given(st.floats(-360, 720))
def test_a_sector_is_the_nearest_eighth(heading_deg: float) -> None:
    sector = int(sector_of(heading_deg))
    off_deg = abs(math.remainder(heading_deg - 45.0 * sector, 360.0))
    assume(off_deg != 22.5)
    assert off_deg < 22.5


def test_sectors_have_the_names_of_the_compass() -> None:
    assert sector_of([0, 45, 90, 135, 180, 225, 270, 315, 350]).tolist() == [*range(8), 0]


@pytest.mark.parametrize("cell_m", [0.0, 9.0, 1e6, math.nan])
def test_cells_of_impossible_size_are_refused(cell_m: float) -> None:
    with pytest.raises(AreaError, match="cell_m"):
        Grid(cell_m)
