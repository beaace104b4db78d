"""From an emergency event to the area that must hear of it (Mercury §4.1, §4.2)."""

from __future__ import annotations

from dataclasses import dataclass

from mercury.geo import haversine_m
from mercury.model.area import Position


@dataclass(frozen=True, slots=True)
class EmergencyRule:
    """How far an emergency concerns others, and what counts as the same one."""

    radius_m: float = 500.0
    horizon_s: float = 20.0  # who drives this long at the speed of traffic to get there, is told
    max_radius_m: float = 5000.0
    merge_distance_m: float = 300.0
    merge_window_s: float = 10.0

    def radius_for(self, traffic_mps: float | None, event_radius_m: float | None) -> float:
        """The radius to alert: by setting, by the speed of traffic, by the event's own size."""
        wanted = max(self.radius_m, (traffic_mps or 0.0) * self.horizon_s, event_radius_m or 0.0)
        return min(wanted, self.max_radius_m)


class Emergencies:
    """Tells a new emergency from another witness of one that was just alerted."""

    def __init__(self, rule: EmergencyRule) -> None:
        self.rule = rule
        self._recent: list[tuple[float, Position]] = []

    def is_new(self, position: Position, now: float) -> bool:
        """Whether nobody has reported this emergency lately; if so, takes note of it."""
        self._recent = [
            (at, fix) for at, fix in self._recent if now - at < self.rule.merge_window_s
        ]
        for _, fix in self._recent:
            distance = haversine_m(position.lat, position.lon, fix.lat, fix.lon)
            if float(distance) <= self.rule.merge_distance_m:
                return False
        self._recent.append((now, position))
        return True
