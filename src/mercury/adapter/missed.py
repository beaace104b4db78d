"""Messages to one client, a group or everyone, kept for those who are away while they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

# Whom a message is for: ("client", name), ("group", name) or EVERYONE.
To = tuple[str, str]
EVERYONE: To = ("everyone", "")


class AddressedAlert(NamedTuple):
    """A message that is not for an area."""

    id: bytes
    to: To
    priority: int
    until_us: int  # how long it is kept; the message itself may hold for ever


class MissedAlerts:
    """What a client that comes back is owed."""

    def __init__(self, max_alerts: int = 100_000) -> None:
        self._alerts: dict[bytes, AddressedAlert] = {}  # the oldest first
        self._ids_of: dict[To, dict[bytes, None]] = {}  # by whom they are for
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
        self._ids_of.setdefault(alert.to, {})[alert.id] = None
        return True

    def owed_to(
        self, roles: Iterable[To], seen: Collection[bytes], now_us: int
    ) -> list[AddressedAlert]:
        """What still holds and has not reached one who is all these, the most urgent first."""
        ids = [id for role in roles for id in self._ids_of.get(role, ())]
        owed = [self._alerts[id] for id in ids if id not in seen]
        return sorted((one for one in owed if one.until_us > now_us), key=lambda one: -one.priority)

    def expire(self, now_us: int) -> None:
        """Forget what holds no more."""
        for id in [one.id for one in self._alerts.values() if one.until_us <= now_us]:
            self._remove(id)

    def _remove(self, id: bytes) -> None:
        to = self._alerts.pop(id).to
        ids = self._ids_of[to]
        del ids[id]
        if not ids:
            del self._ids_of[to]
