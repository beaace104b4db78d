"""The alerts and traffic conditions in force, by place, held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mercury.geo import overlaps
from mercury.geo.arrays import grown
from mercury.geo.containment import prepare
from mercury.mediator import Room
from mercury.model.area import Area
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Event

_FIRST_CAPACITY = 256
_ROUNDING_DEG = 1e-6


@dataclass(frozen=True, slots=True)
class Condition:
    """An alert or traffic state that is valid in an area until a time."""

    event: Event
    area: Area
    since_us: int
    until_us: int

    def to_json(self) -> dict[str, object]:
        return {
            "kind": self.event.kind,
            "text": self.event.text,
            "since_us": self.since_us,
            "until_us": self.until_us,
            "values": {
                key: value for key, value in self.event.values.items()
                if not isinstance(value, bytes)
            },
            "area": area_to_geojson(self.area),
        }  # fmt: skip


class Conditions:
    """The latest condition under each id; boxes around the areas are columns."""

    def __init__(self, max_conditions: int = 100_000, max_per_client: int = 1000) -> None:
        self.shed = 0  # conditions that made room for others
        self._by_id: dict[UUID, Condition] = {}
        self._room = Room(max_conditions, max_per_client)
        self._row_of: dict[UUID, int] = {}
        self._at: list[Condition | None] = []  # by row
        self._free: list[int] = []
        # South, north, west and width.
        self._box: NDArray[np.float64] = np.full((_FIRST_CAPACITY, 4), np.nan)

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, id: UUID, condition: Condition, source: str = "", priority: int = 0) -> None:
        """Keep a condition; above the limit the least urgent makes room."""
        row = self._row_of.get(id)
        if row is None:
            row = self._row_of[id] = self._take_row()
        self._by_id[id] = self._at[row] = condition
        box = prepare(condition.area.shape).box
        self._box[row] = box.south, box.north, box.west, box.width_deg
        self._room.remove(id)
        for full in self._room.add(id, source, priority):
            self.shed += 1
            self._forget(full)  # type: ignore[arg-type]

    def inside(self, area: Area, now_us: int) -> list[Condition]:
        """The conditions in force that overlap the area, newest first."""
        candidates = (self._at[row] for row in self._near(area))
        found = [
            condition
            for condition in candidates
            if condition is not None
            and condition.until_us > now_us
            and overlaps(condition.area, area)
        ]
        return sorted(found, key=lambda condition: -condition.since_us)

    def expire(self, now_us: int) -> None:
        for id in [id for id, condition in self._by_id.items() if condition.until_us <= now_us]:
            self._room.remove(id)
            self._forget(id)

    def _near(self, area: Area) -> list[int]:
        """Rows of the conditions whose boxes overlap that of an area."""
        box = prepare(area.shape).box
        south, north, west, width = self._box[: len(self._at)].T
        is_near = (south <= box.north) & (north >= box.south)
        is_near &= ((west - box.west) % 360.0 <= box.width_deg + _ROUNDING_DEG) | (
            (box.west - west) % 360.0 <= width + _ROUNDING_DEG
        )
        # A pole has every longitude.
        is_near |= (north == 90.0) & (box.north == 90.0)
        is_near |= (south == -90.0) & (box.south == -90.0)
        rows: list[int] = np.flatnonzero(is_near).tolist()
        return rows

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._at.append(None)
        self._box = grown(self._box, len(self._at) - 1, np.nan)
        return len(self._at) - 1

    def _forget(self, id: UUID) -> None:
        del self._by_id[id]
        row = self._row_of.pop(id)
        self._at[row] = None
        self._box[row] = np.nan
        self._free.append(row)
