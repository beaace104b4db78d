"""Alerts that are still valid: no second one is sent for the same incident."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mercury.detection.spatial_index import Located, SpatialIndex
from mercury.geo.space import Point


@dataclass(slots=True, eq=False)
class Alert(Located):
    """An alert in force; its position follows its incident."""

    until_us: int
    incident_id: bytes


class AlertsInForce:
    """The alerts of one kind, found by place until they expire."""

    def __init__(self, reach_m: float, max_alerts: int) -> None:
        self._max_alerts = max_alerts
        self._alerts: dict[Alert, None] = {}  # the first to expire comes first
        self._index: SpatialIndex[Alert] = SpatialIndex(reach_m)

    def __iter__(self) -> Iterator[Alert]:
        return iter(self._alerts)

    def put(self, alert: Alert) -> bool:
        """Add an alert; False if the first to expire had to be dropped for it."""
        fits = len(self._alerts) < self._max_alerts
        if not fits:
            self._remove(next(iter(self._alerts)))
        self._alerts[alert] = None
        self._index.put(alert)
        return fits

    def holding(self, point: Point, now_us: int) -> Alert | None:
        """The nearest valid alert within reach; its position becomes this one."""
        self.expire(now_us)
        alert = self._index.nearest(point)
        if alert is not None:
            alert.point = point
            self._index.put(alert)
        return alert

    def expire(self, now_us: int) -> None:
        """Remove expired alerts."""
        while self._alerts:
            alert = next(iter(self._alerts))
            if alert.until_us > now_us:
                return
            self._remove(alert)

    def _remove(self, alert: Alert) -> None:
        del self._alerts[alert]
        self._index.remove(alert)
