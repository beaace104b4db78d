"""The nearest within reach of a point: a hash of cubes in space, so no tile has a border."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mercury.geo.space import Point


@dataclass(slots=True, eq=False)
class Located:
    """Something at a place; `rank` orders items that are equally near."""

    point: Point
    rank: tuple[int, bytes]
    cube: tuple[int, int, int] | None = field(default=None, init=False)  # where the index keeps it


T = TypeVar("T", bound=Located)


class SpatialIndex(Generic[T]):
    """An index of placed items by their place."""

    def __init__(self, reach_m: float) -> None:
        self.reach_m = reach_m
        self._reach_squared = reach_m * reach_m
        # Cubes twice as wide as the reach: of each dimension only one neighbour can matter.
        self._side_m = 2.0 * reach_m
        self._cubes: dict[tuple[int, int, int], list[T]] = {}

    def put(self, item: T) -> None:
        """Take an item in, or again after its place has changed."""
        x, y, z = item.point
        side = self._side_m
        cube = (math.floor(x / side), math.floor(y / side), math.floor(z / side))
        if cube == item.cube:
            return
        if item.cube is not None:
            self.remove(item)
        self._cubes.setdefault(cube, []).append(item)
        item.cube = cube

    def remove(self, item: T) -> None:
        """Forget an item that was put."""
        assert item.cube is not None
        items = self._cubes[item.cube]
        items.remove(item)
        if not items:
            del self._cubes[item.cube]
        item.cube = None

    def nearest(self, point: Point, besides: T | None = None) -> T | None:
        """The nearest item within reach; of equally near ones that of the lowest rank."""
        x, y, z = point
        side, cubes = self._side_m, self._cubes
        best: T | None = None
        best_squared = self._reach_squared
        xs, ys, zs = _sides(x / side), _sides(y / side), _sides(z / side)
        for i in xs:
            for j in ys:
                for k in zs:
                    for item in cubes.get((i, j, k), ()):
                        u, v, w = item.point
                        squared = (x - u) * (x - u) + (y - v) * (y - v) + (z - w) * (z - w)
                        if squared > best_squared or item is besides:
                            continue
                        if squared < best_squared or best is None or item.rank < best.rank:
                            best, best_squared = item, squared
        return best


def _sides(scaled: float) -> tuple[int, int]:
    """The cube along one dimension, and the neighbour that is within half a cube."""
    floor = math.floor(scaled)
    return (floor, floor + 1) if scaled - floor >= 0.5 else (floor, floor - 1)
