"""A city that needs no file: streets in a grid, wider ones, a motorway ring and two diagonals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from mercury.geo import destination
from mercury.geo.arrays import FloatArray
from mercury.model.area import Position
from mercury.model.errors import RoadsError
from mercury.roads.network import Numbers, RoadNetwork, build

BLOCK_M = 200.0
ARTERIAL_EVERY = 5  # of the streets, each way
STREET_MPS, ARTERIAL_MPS, RAMP_MPS, MOTORWAY_MPS = 30 / 3.6, 60 / 3.6, 50 / 3.6, 100 / 3.6
ONE_WAY_SHARE = 0.15
MISSING_SHARE = 0.08  # where a park, a river or a railway is in the way
RING_SHARE = 0.35  # its radius, of the shorter side
INTERCHANGE_M = 1_000.0

_CROOKED = 0.15  # of a block: how far crossings are from where the grid has them
_SMALLEST_M, _LARGEST_M = 5 * BLOCK_M, 400_000.0


@dataclass(slots=True)
class _Lines:
    """Straight edges, collected on the plane."""

    sources: list[Numbers] = field(default_factory=list)
    targets: list[Numbers] = field(default_factory=list)
    speeds: list[FloatArray] = field(default_factory=list)

    def add(self, sources: Numbers, targets: Numbers, speed_mps: FloatArray | float) -> None:
        self.sources.append(sources)
        self.targets.append(targets)
        self.speeds.append(np.broadcast_to(np.float64(speed_mps), sources.shape))

    def add_both_ways(
        self, sources: Numbers, targets: Numbers, speed_mps: FloatArray | float
    ) -> None:
        self.add(sources, targets, speed_mps)
        self.add(targets, sources, speed_mps)


def generate(seed: int, size_m: tuple[float, float], origin: Position) -> RoadNetwork:
    """A city around an origin; the same seed gives the same one."""
    for side_m in size_m:
        if not _SMALLEST_M <= side_m <= _LARGEST_M:
            raise RoadsError(
                f"a city of {side_m / 1000:g} km is none: its sides are from"
                f" {_SMALLEST_M / 1000:g} to {_LARGEST_M / 1000:g} km"
            )
    rng = np.random.default_rng((seed, 0xC17))
    columns, rows = (round(side_m / BLOCK_M) + 1 for side_m in size_m)
    lines = _Lines()
    _streets(lines, columns, rows, rng)

    grid_x, grid_y = np.meshgrid(np.arange(columns), np.arange(rows))
    x = (grid_x.ravel() - (columns - 1) / 2) * BLOCK_M
    y = (grid_y.ravel() - (rows - 1) / 2) * BLOCK_M
    x = x + rng.uniform(-_CROOKED, _CROOKED, x.shape) * BLOCK_M
    y = y + rng.uniform(-_CROOKED, _CROOKED, y.shape) * BLOCK_M
    for way_x, way_y, closed in _motorways(size_m):
        _motorway(lines, len(x), way_x, way_y, closed, columns, rows)
        x, y = np.concatenate([x, way_x]), np.concatenate([y, way_y])

    azimuth_deg = np.degrees(np.arctan2(x, y))
    lats, lons = destination(origin.lat, origin.lon, azimuth_deg, np.hypot(x, y))
    sources, targets = np.concatenate(lines.sources), np.concatenate(lines.targets)
    ends = np.stack([sources, targets], axis=1).ravel()
    firsts = np.arange(0, len(ends) + 1, 2)
    speeds = np.concatenate(lines.speeds)
    return build(lats, lons, sources, targets, speeds, firsts, lats[ends], lons[ends])


def _streets(lines: _Lines, columns: int, rows: int, rng: np.random.Generator) -> None:
    numbers = np.arange(columns * rows).reshape(rows, columns)
    for sources, targets, across in (
        (numbers[:, :-1], numbers[:, 1:], np.arange(rows)[:, None]),
        (numbers[:-1, :], numbers[1:, :], np.arange(columns)[None, :]),
    ):
        arterial = np.broadcast_to(across % ARTERIAL_EVERY == 0, sources.shape)
        there = arterial | (rng.random(sources.shape) >= MISSING_SHARE)
        # A whole street has one direction, not a block of it.
        one_way = (rng.random(across.shape) < ONE_WAY_SHARE) & (across % ARTERIAL_EVERY != 0)
        turned = rng.random(across.shape) < 0.5
        speed = np.where(arterial, ARTERIAL_MPS, STREET_MPS)
        forward = there & np.broadcast_to(~one_way | ~turned, sources.shape)
        backward = there & np.broadcast_to(~one_way | turned, sources.shape)
        lines.add(sources[forward], targets[forward], speed[forward])
        lines.add(targets[backward], sources[backward], speed[backward])


def _motorways(size_m: tuple[float, float]) -> list[tuple[FloatArray, FloatArray, bool]]:
    """Where interchanges are: on the ring, and from corner to corner."""
    radius_m = RING_SHARE * min(size_m)
    around = max(8, round(2 * math.pi * radius_m / INTERCHANGE_M))
    angle = np.linspace(0.0, 2 * math.pi, around, endpoint=False)
    ways = [(radius_m * np.sin(angle), radius_m * np.cos(angle), True)]
    half_x, half_y = 0.45 * size_m[0], 0.45 * size_m[1]
    along = np.linspace(-1.0, 1.0, max(2, round(2 * math.hypot(half_x, half_y) / INTERCHANGE_M)))
    ways.append((along * half_x, along * half_y, False))
    ways.append((along * half_x, -along * half_y, False))
    return ways


def _motorway(
    lines: _Lines,
    first: int,
    x: FloatArray,
    y: FloatArray,
    closed: bool,
    columns: int,
    rows: int,
) -> None:
    """Both carriageways, and at each interchange ramps to the nearest crossing of an arterial."""
    nodes = first + np.arange(len(x))
    sources, targets = (nodes, np.roll(nodes, -1)) if closed else (nodes[:-1], nodes[1:])
    lines.add_both_ways(sources, targets, MOTORWAY_MPS)
    column = _nearest_arterial(x / BLOCK_M + (columns - 1) / 2, columns)
    row = _nearest_arterial(y / BLOCK_M + (rows - 1) / 2, rows)
    lines.add_both_ways(nodes, row * columns + column, RAMP_MPS)


def _nearest_arterial(place: FloatArray, count: int) -> Numbers:
    last = (count - 1) // ARTERIAL_EVERY
    nearest = np.clip(np.rint(place / ARTERIAL_EVERY), 0, last)
    return nearest.astype(np.int64) * ARTERIAL_EVERY
