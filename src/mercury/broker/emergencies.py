"""The area to alert for an emergency event (Mercury §4.1, §4.2)."""

from __future__ import annotations

from mercury.config.settings import BrokerSettings
from mercury.geo import haversine_m
from mercury.model.area import Position


class Emergencies:
    """Distinguishes a new emergency from another report of one that was just alerted."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._recent: list[tuple[float, Position]] = []

    def radius_for(self, traffic_mps: float | None, event_radius_m: float | None) -> float:
        """The radius to alert: the setting, the speed of traffic or the event's size, if larger."""
        settings = self._settings
        reach_m = (traffic_mps or 0.0) * settings.emergency_horizon_s
        wanted = max(settings.emergency_radius_m, reach_m, event_radius_m or 0.0)
        return min(wanted, settings.emergency_max_radius_m)

    def is_new(self, position: Position, now: float) -> bool:
        """Whether this emergency was not reported lately; if so, remember it."""
        window_s, distance_m = self._settings.merge_window_s, self._settings.merge_distance_m
        # What seems to come later was reported before somebody set the clock back.
        self._recent = [(at, fix) for at, fix in self._recent if abs(now - at) < window_s]
        for _, fix in self._recent:
            if float(haversine_m(position.lat, position.lon, fix.lat, fix.lon)) <= distance_m:
                return False
        self._recent.append((now, position))
        return True
