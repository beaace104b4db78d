"""Tiles, against the textbook formula."""

from __future__ import annotations

import numpy as np
import pytest

from mercury.pipeline.history.tiles import (
    NOWHERE,
    ZOOM,
    tile_centre,
    tile_numbers,
    tile_of,
    tiles_over,
)

EDGES = [
    (0.0, 0.0),
    (90.0, 180.0),
    (-90.0, -180.0),
    (85.06, 0.0),
    (-85.06, 179.999999),
    (40.7, -111.9),
]


def names(lats: np.ndarray, lons: np.ndarray) -> list[str]:
    """The slow, obvious twin."""
    side = 2**ZOOM
    lats = np.radians(np.clip(lats, -85.05112877980659, 85.05112877980659))
    x = np.floor((lons + 180.0) / 360.0 * side)
    y = np.floor((1.0 - np.arcsinh(np.tan(lats)) / np.pi) / 2.0 * side)
    return [
        f"{ZOOM}-{int(a)}-{int(b)}"
        for a, b in zip(np.clip(x, 0, side - 1), np.clip(y, 0, side - 1), strict=True)
    ]


def test_numbers_name_the_textbooks_tiles() -> None:
    rng = np.random.default_rng(7)
    lats = np.concatenate([rng.uniform(-90, 90, 2000), [lat for lat, _ in EDGES]])
    lons = np.concatenate([rng.uniform(-180, 180, 2000), [lon for _, lon in EDGES]])
    assert [tile_of(number) for number in tile_numbers(lats, lons)] == names(lats, lons)


def test_no_place_no_tile() -> None:
    found = tile_numbers(np.array([np.nan, 1.0]), np.array([1.0, np.nan]))
    assert [tile_of(number) for number in found] == [NOWHERE, NOWHERE]


@pytest.mark.parametrize(
    "box", [(40.0, -112.0, 40.5, -111.0), (-0.1, 179.9, 0.1, -179.9), (84.9, 10.0, 90.0, 10.2)]
)
def test_a_box_names_all_its_tiles(box: tuple[float, float, float, float]) -> None:
    south, west, north, east = box
    rng = np.random.default_rng(1)
    width = (east - west) % 360.0
    lats = rng.uniform(south, north, 500)
    lons = (west + rng.uniform(0, width, 500) + 180.0) % 360.0 - 180.0
    tiles = tiles_over(*box)
    assert tiles is not None
    assert set(names(lats, lons)) <= set(tiles)
    assert len(tiles) == len(set(tiles)) < 400


def test_a_large_box_names_none() -> None:
    assert tiles_over(-60.0, -180.0, 60.0, 180.0) is None


def test_the_middle_of_a_tile_is_in_it() -> None:
    lat, lon = tile_centre("12-774-1538") or (0.0, 0.0)
    assert names(np.array([lat]), np.array([lon])) == ["12-774-1538"]
    assert tile_centre(NOWHERE) is None
    assert tile_centre("12-x-1") is None
