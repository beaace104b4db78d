"""The nearest within reach of a point: a hash of cubes in space, so no tile has a border."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mercury.geo.space import Point


@dataclass(slots=True, eq=False)
class Located:
    """Something at a place; `rank` orders things that are equally near."""

    point: Point
    rank: tuple[int, bytes]
    cube: tuple[int, int, int] | None = field(default=None, init=False)  # where the index keeps it


T = TypeVar("T", bound=Located)


class SpatialIndex(Generic[T]):
    """An index of placed things by their place."""

    def __init__(self, reach_m: float) -> None:
        self.reach_m = reach_m
        self._reach_squared = reach_m * reach_m
        # Cubes twice as wide as the reach: of each dimension only one neighbour can matter.
        self._side_m = 2.0 * reach_m
        self._cubes: dict[tuple[int, int, int], list[T]] = {}

    def put(self, thing: T) -> None:
        """Take a thing in, or again after its place has changed."""
        x, y, z = thing.point
        side = self._side_m
        cube = (math.floor(x / side), math.floor(y / side), math.floor(z / side))
        if cube == thing.cube:
            return
        if thing.cube is not None:
            self.remove(thing)
        self._cubes.setdefault(cube, []).append(thing)
        thing.cube = cube

    def remove(self, thing: T) -> None:
        """Forget a thing that was put."""
        assert thing.cube is not None
        things = self._cubes[thing.cube]
        things.remove(thing)
        if not things:
            del self._cubes[thing.cube]
        thing.cube = None

    def nearest(self, point: Point, besides: T | None = None) -> T | None:
        """The nearest thing within reach; of equally near ones that of the lowest rank."""
        x, y, z = point
        side, cubes = self._side_m, self._cubes
        best: T | None = None
        best_squared = self._reach_squared
        xs, ys, zs = _sides(x / side), _sides(y / side), _sides(z / side)
        for i in xs:
            for j in ys:
                for k in zs:
                    for thing in cubes.get((i, j, k), ()):
                        u, v, w = thing.point
                        squared = (x - u) * (x - u) + (y - v) * (y - v) + (z - w) * (z - w)
                        if squared > best_squared or thing is besides:
                            continue
                        if squared < best_squared or best is None or thing.rank < best.rank:
                            best, best_squared = thing, squared
        return best


def _sides(scaled: float) -> tuple[int, int]:
    """The cube along one dimension, and the neighbour that is within half a cube."""
    floor = math.floor(scaled)
    return (floor, floor + 1) if scaled - floor >= 0.5 else (floor, floor - 1)
