"""The area to alert for an emergency event (Mercury §4.1, §4.2)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from itertools import count, product
from typing import NamedTuple

from mercury.config.settings import BrokerSettings
from mercury.geo import haversine_m
from mercury.geo.distance import SPHERE_ERROR
from mercury.geo.space import to_space
from mercury.model.area import Position

Cell = tuple[int, int, int]

_NEIGHBOURS = list(product((-1, 0, 1), repeat=3))
_SMALLEST_CELL_M = 1.0


class _Recent(NamedTuple):
    """An emergency that was just alerted; the number makes each one different."""

    at: float
    number: int
    position: Position
    cell: Cell


class Emergencies:
    """Distinguishes a new emergency from another report of one that was just alerted.

    They are kept in cells of space as wide as the distance to merge within, so that each is
    compared with the few around it, however many there are.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        # Positions this far apart on a sphere are at most so much further apart in space.
        widest_m = settings.merge_distance_m * (1.0 + SPHERE_ERROR)
        self._cell_m = max(widest_m, _SMALLEST_CELL_M)
        self._recent: list[_Recent] = []  # by time
        self._in_cell: dict[Cell, list[_Recent]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._recent)

    def radius_for(self, traffic_mps: float | None, event_radius_m: float | None) -> float:
        """The radius to alert: the setting, the speed of traffic or the event's size, if larger."""
        settings = self._settings
        reach_m = (traffic_mps or 0.0) * settings.emergency_horizon_s
        wanted = max(settings.emergency_radius_m, reach_m, event_radius_m or 0.0)
        return min(wanted, settings.emergency_max_radius_m)

    def is_new(self, position: Position, now: float) -> bool:
        """Whether this emergency was not reported lately; if so, remember it."""
        self._forget(now)
        x, y, z = (math.floor(at / self._cell_m) for at in to_space(position.lat, position.lon))
        distance_m = self._settings.merge_distance_m
        for dx, dy, dz in _NEIGHBOURS:
            for one in self._in_cell.get((x + dx, y + dy, z + dz), ()):
                fix = one.position
                if float(haversine_m(position.lat, position.lon, fix.lat, fix.lon)) <= distance_m:
                    return False
        if len(self._recent) >= self._settings.max_recent_emergencies:
            self._remove(0, 1)
        recent = _Recent(now, next(self._numbers), position, (x, y, z))
        insort(self._recent, recent)
        self._in_cell.setdefault(recent.cell, []).append(recent)
        return True

    def _forget(self, now: float) -> None:
        window_s, recent = self._settings.merge_window_s, self._recent
        # What seems to come later was reported before somebody set the clock back.
        self._remove(bisect_left(recent, now + window_s, key=_time), len(recent))
        self._remove(0, bisect_right(recent, now - window_s, key=_time))

    def _remove(self, first: int, last: int) -> None:
        for one in self._recent[first:last]:
            in_cell = self._in_cell[one.cell]
            in_cell.remove(one)
            if not in_cell:
                del self._in_cell[one.cell]
        del self._recent[first:last]


def _time(recent: _Recent) -> float:
    return recent.at
