"""The alerts and traffic conditions in force, by place, held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mercury.geo import overlaps
from mercury.mediator import Room
from mercury.model.area import Area
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Event


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
    """The latest condition under each id."""

    def __init__(self, max_conditions: int = 100_000, max_per_client: int = 1000) -> None:
        self.shed = 0  # conditions that made room for others
        self._by_id: dict[UUID, Condition] = {}
        self._room = Room(max_conditions, max_per_client)

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, id: UUID, condition: Condition, source: str = "", priority: int = 0) -> None:
        """Keep a condition; above the limit the least urgent makes room."""
        is_new = id not in self._by_id
        self._by_id[id] = condition
        if is_new:
            for full in self._room.add(id, source, priority):
                self.shed += 1
                del self._by_id[full]  # type: ignore[arg-type]

    def inside(self, area: Area, now_us: int) -> list[Condition]:
        """The conditions in force that overlap the area, newest first."""
        found = [
            condition
            for condition in self._by_id.values()
            if condition.until_us > now_us and overlaps(condition.area, area)
        ]
        return sorted(found, key=lambda condition: -condition.since_us)

    def expire(self, now_us: int) -> None:
        for id in [id for id, condition in self._by_id.items() if condition.until_us <= now_us]:
            del self._by_id[id]
            self._room.remove(id)
