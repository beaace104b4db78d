"""Alerts to one client or to everyone, kept for those who are away while they hold."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class AddressedAlert(NamedTuple):
    """An alert that is not for an area."""

    id: bytes
    client: str | None  # None: everyone
    kind: int
    priority: int
    body: bytes
    until_us: int  # how long it is kept; the alert itself may hold for ever


class MissedAlerts:
    """What a client that comes back is owed."""

    def __init__(self, max_alerts: int = 100_000) -> None:
        self._alerts: dict[bytes, AddressedAlert] = {}  # the oldest first
        self._ids_of: dict[str | None, dict[bytes, None]] = {}  # by whom they are for
        self._max_alerts = max_alerts

    def __len__(self) -> int:
        return len(self._alerts)

    def add(self, alert: AddressedAlert) -> bool:
        """Keep an alert; False if it is already known."""
        if alert.id in self._alerts:
            return False
        if len(self._alerts) >= self._max_alerts:
            self._remove(next(iter(self._alerts)))
        self._alerts[alert.id] = alert
        self._ids_of.setdefault(alert.client, {})[alert.id] = None
        return True

    def owed_to(self, client: str, seen: Collection[bytes], now_us: int) -> list[AddressedAlert]:
        """What still holds and has not reached the client, the most urgent first."""
        ids = [*self._ids_of.get(client, ()), *self._ids_of.get(None, ())]
        owed = [self._alerts[id] for id in ids if id not in seen]
        return sorted((one for one in owed if one.until_us > now_us), key=lambda one: -one.priority)

    def expire(self, now_us: int) -> None:
        """Forget what holds no more."""
        for id in [one.id for one in self._alerts.values() if one.until_us <= now_us]:
            self._remove(id)

    def _remove(self, id: bytes) -> None:
        client = self._alerts.pop(id).client
        ids = self._ids_of[client]
        del ids[id]
        if not ids:
            del self._ids_of[client]
