"""A city that needs no file: streets in a grid, wider ones, a motorway ring and two diagonals."""

from __future__ import annotations

import math

import numpy as np

from mercury.geo.arrays import FloatArray
from mercury.model.area import Position
from mercury.model.errors import RoadsError
from mercury.roads.network import Numbers, RoadNetwork, build
from mercury.roads.plane import PlaneFrame

BLOCK_M = 200.0
ARTERIAL_EVERY = 5  # of the streets, each way
STREET_MPS, ARTERIAL_MPS, RAMP_MPS, MOTORWAY_MPS = 30 / 3.6, 60 / 3.6, 50 / 3.6, 100 / 3.6
ONE_WAY_SHARE = 0.15
MISSING_SHARE = 0.08  # where a park, a river or a railway is in the way
RING_SHARE = 0.35  # its radius, of the shorter side
INTERCHANGE_M = 1_000.0

_CROOKED = 0.15  # of a block: how far crossings are from where the grid has them
_SMALLEST_M, _LARGEST_M = 5 * BLOCK_M, 400_000.0

Lines = list[tuple[Numbers, Numbers, FloatArray]]  # straight edges: sources, targets and speeds


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
    lines = _streets(columns, rows, rng)

    grid_x, grid_y = np.meshgrid(np.arange(columns), np.arange(rows))
    x = (grid_x.ravel() - (columns - 1) / 2) * BLOCK_M
    y = (grid_y.ravel() - (rows - 1) / 2) * BLOCK_M
    x = x + rng.uniform(-_CROOKED, _CROOKED, x.shape) * BLOCK_M
    y = y + rng.uniform(-_CROOKED, _CROOKED, y.shape) * BLOCK_M
    for way_x, way_y, closed in _motorways(size_m):
        lines += _motorway(len(x), way_x, way_y, closed, columns, rows)
        x, y = np.concatenate([x, way_x]), np.concatenate([y, way_y])

    lats, lons = PlaneFrame(origin).to_wgs84(x, y)
    sources, targets, speeds = (np.concatenate(column) for column in zip(*lines, strict=True))
    ends = np.stack([sources, targets], axis=1).ravel()
    firsts = np.arange(0, len(ends) + 1, 2)
    return build(lats, lons, sources, targets, speeds, firsts, lats[ends], lons[ends])


def _streets(columns: int, rows: int, rng: np.random.Generator) -> Lines:
    lines: Lines = []
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
        lines.append((sources[forward], targets[forward], speed[forward]))
        lines.append((targets[backward], sources[backward], speed[backward]))
    return lines


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
    first: int, x: FloatArray, y: FloatArray, closed: bool, columns: int, rows: int
) -> Lines:
    """Both carriageways, and at each interchange ramps to the nearest crossing of an arterial."""
    nodes = first + np.arange(len(x))
    sources, targets = (nodes, np.roll(nodes, -1)) if closed else (nodes[:-1], nodes[1:])
    column = _nearest_arterial(x / BLOCK_M + (columns - 1) / 2, columns)
    row = _nearest_arterial(y / BLOCK_M + (rows - 1) / 2, rows)
    crossings = row * columns + column
    motorway, ramp = np.full(len(sources), MOTORWAY_MPS), np.full(len(nodes), RAMP_MPS)
    return [
        (sources, targets, motorway),
        (targets, sources, motorway),
        (nodes, crossings, ramp),
        (crossings, nodes, ramp),
    ]


def _nearest_arterial(place: FloatArray, count: int) -> Numbers:
    last = (count - 1) // ARTERIAL_EVERY
    nearest = np.clip(np.rint(place / ARTERIAL_EVERY), 0, last)
    return nearest.astype(np.int64) * ARTERIAL_EVERY
