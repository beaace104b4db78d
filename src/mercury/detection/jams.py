"""Jams: adjacent congested cells of one direction, and the area to alert."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from mercury.geo import destination
from mercury.geo.arrays import FloatArray
from mercury.geo.grid import SECTOR_DEG, SECTORS, Grid
from mercury.geo.local_frame import LocalFrame
from mercury.geo.space import from_space, to_space
from mercury.model.area import Circle, Corridor, HeadingSector, Position, Shape

Key = tuple[int, int]  # cell, sector

# A road bends, and headings at the border of two sectors fall into both; but a jam that turned
# further would take in the other carriageway.
MAX_ARC = 3
# Beyond the jam's own sectors: drivers change lanes, and receivers know headings roughly.
SLACK_DEG = 22.5
MAX_LINE_POINTS = 24  # an alert is one packet


@dataclass(slots=True)
class Jam:
    """One jam, and its last alert."""

    id: bytes
    since_us: int
    keys: frozenset[Key]
    alerted: int = 0  # alerts given
    until_us: int = 0  # when the last of them expires
    alerted_cells: frozenset[int] = field(default_factory=frozenset)  # and was about these

    @property
    def rank(self) -> tuple[int, bytes]:
        return (self.since_us, self.id)

    @property
    def cells(self) -> frozenset[int]:
        return frozenset(cell for cell, _ in self.keys)


def components(keys: Iterable[Key], grid: Grid) -> list[frozenset[Key]]:
    """Groups of adjacent cells, in the same or the next sector, up to MAX_ARC."""
    ordered = sorted(keys)
    parent = {key: key for key in ordered}
    sectors = {key: 1 << key[1] for key in ordered}  # of each root, as bits

    def root(key: Key) -> Key:
        while parent[key] != key:
            parent[key] = key = parent[parent[key]]
        return key

    # The same sector first, so that cells of one direction are grouped first.
    for turn in (0, 1):
        for cell, sector in ordered:
            near = [*sorted(grid.neighbours(cell)), cell]
            for other in [(c, (sector + turn) % SECTORS) for c in near]:
                if other not in parent:
                    continue
                a, b = root((cell, sector)), root(other)
                both = sectors[a] | sectors[b]
                if a != b and _arc(both)[1] <= MAX_ARC:
                    first, second = min(a, b), max(a, b)
                    parent[second] = first
                    sectors[first] = both
    groups: dict[Key, set[Key]] = {}
    for key in ordered:
        groups.setdefault(root(key), set()).add(key)
    return [frozenset(group) for _, group in sorted(groups.items())]


def heading_of(keys: Iterable[Key]) -> HeadingSector:
    """The directions of travel that a jam concerns."""
    mask = 0
    for _, sector in keys:
        mask |= 1 << sector
    first, length = _arc(mask)
    centre_deg = (first + (length - 1) / 2.0) * SECTOR_DEG % 360.0
    return HeadingSector(centre_deg, min(length * SECTOR_DEG / 2.0 + SLACK_DEG, 180.0))


def _arc(mask: int) -> tuple[int, int]:
    """The first sector and the length of the shortest arc that has all sectors of the mask."""
    sectors = [s for s in range(SECTORS) if mask >> s & 1]
    return min(
        ((first, 1 + max((s - first) % SECTORS for s in sectors)) for first in sectors),
        key=lambda arc: (arc[1], arc[0]),
    )


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a jam."""

    centre: Position
    radius_m: float
    length_m: float  # along the direction of travel
    heading: HeadingSector
    shape: Shape  # the jam and the way towards it


def extent_of(keys: frozenset[Key], grid: Grid, approach_m: float) -> Extent:
    """A line through the cells in the direction of travel, wide enough for all of them."""
    cells = sorted({cell for cell, _ in keys})
    heading = heading_of(keys)
    lats, lons = grid.centre_of(cells)
    lat, lon = _middle(lats, lons)
    east, north, _ = LocalFrame(lat, lon).offsets(lats, lons)
    turn = math.radians(heading.center_deg)
    along = east * math.sin(turn) + north * math.cos(turn)
    across = east * math.cos(turn) - north * math.sin(turn)

    half_cell_m = grid.cell_m * math.sqrt(0.5)
    span_m = float(along.max() - along.min())
    step_m = max(grid.cell_m, span_m / (MAX_LINE_POINTS - 1))
    bucket = np.floor((along - along.min()) / step_m).astype(np.int64)
    line, flat = [], []
    for number in np.unique(bucket).tolist():
        own = bucket == number
        line.append(Position(*_middle(lats[own], lons[own])))
        flat.append((float(along[own].mean()), float(across[own].mean())))
    width_m = 2.0 * (_farthest(along, across, flat) + half_cell_m)
    if approach_m > 0.0:
        back = destination(line[0].lat, line[0].lon, heading.center_deg + 180.0, approach_m)
        line.insert(0, Position(float(back[0]), math.remainder(float(back[1]), 360.0)))
    radius_m = float(np.hypot(along, across).max()) + half_cell_m
    centre = Position(lat, lon)
    return Extent(
        centre=centre,
        radius_m=radius_m,
        length_m=span_m + grid.cell_m,
        heading=heading,
        shape=Corridor(tuple(line), width_m) if len(line) > 1 else Circle(centre, radius_m),
    )


def _middle(lats: FloatArray, lons: FloatArray) -> tuple[float, float]:
    points = [to_space(lat, lon) for lat, lon in zip(lats.tolist(), lons.tolist(), strict=True)]
    x, y, z = (math.fsum(axis) / len(points) for axis in zip(*points, strict=True))
    return from_space((x, y, z))


def _farthest(along: FloatArray, across: FloatArray, line: list[tuple[float, float]]) -> float:
    """How far the farthest point is from a line of segments, in the plane."""
    if len(line) == 1:
        return float(np.hypot(along - line[0][0], across - line[0][1]).max())
    distances = []
    for (x0, y0), (x1, y1) in pairwise(line):
        dx, dy = x1 - x0, y1 - y0
        part = np.clip(((along - x0) * dx + (across - y0) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        distances.append(np.hypot(along - x0 - part * dx, across - y0 - part * dy))
    return float(np.min(distances, axis=0).max())
