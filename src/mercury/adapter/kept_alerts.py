"""Alerts kept while they are valid, for clients that come later.

An alert for an area also reaches clients that enter it; one for a client, a group or everyone also
those that connect again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.geo import contains
from mercury.geo.arrays import grown
from mercury.model.area import Area
from mercury.session import Session, SessionTable

# Whom a message is for: ("client", name), ("group", name) or EVERYONE.
To = tuple[str, str]
EVERYONE: To = ("everyone", "")


@dataclass(slots=True)
class StandingAlert:
    """An alert and the clients that have it."""

    id: bytes
    area: Area
    priority: int
    until_us: int
    has_it: NDArray[np.bool_]  # by slot
    looked_at_all: bool = False  # before that, clients that do not move are checked, too


class StandingAlerts:
    """Sends each alert once to every client that is inside its area or enters it."""

    def __init__(self, table: SessionTable, max_alerts: int = 10_000) -> None:
        self._table = table
        self._alerts: dict[bytes, StandingAlert] = {}
        self._max_alerts = max_alerts

    def __len__(self) -> int:
        return len(self._alerts)

    def add(self, id: bytes, area: Area, priority: int, until_us: int) -> StandingAlert | None:
        """Take an alert; None if it is already known."""
        if id in self._alerts:
            return None
        if len(self._alerts) >= self._max_alerts:  # the one that ends first makes room
            del self._alerts[min(self._alerts.values(), key=lambda alert: alert.until_us).id]
        has_it = np.zeros(len(self._table.active), bool)
        alert = StandingAlert(id, area, priority, until_us, has_it)
        self._alerts[id] = alert
        return alert

    def newly_inside(
        self, alert: StandingAlert, candidates: NDArray[np.intp], now_us: int
    ) -> NDArray[np.intp]:
        """The candidates that are inside and did not have it; they have it from now on."""
        table = self._table
        alert.has_it = grown(alert.has_it, len(table.active) - 1)
        candidates = candidates[~alert.has_it[candidates]]
        if not len(candidates):
            return candidates
        inside = contains(
            alert.area,
            table.lat[candidates],
            table.lon[candidates],
            table.heading[candidates],
            now_us,
        )
        found = candidates[inside]
        alert.has_it[found] = True
        return found

    def due(self, now_us: int) -> Iterator[tuple[StandingAlert, NDArray[np.intp]]]:
        """Yield each alert in force with the slots that entered its area since the last call.

        The most urgent come first.
        """
        for id in [id for id, alert in self._alerts.items() if alert.until_us <= now_us]:
            del self._alerts[id]
        table = self._table
        moved = np.flatnonzero(table.moved & table.active)
        table.moved[moved] = False
        for alert in sorted(self._alerts.values(), key=lambda alert: -alert.priority):
            begun = alert.area.valid_from_us is None or alert.area.valid_from_us <= now_us
            if not begun:
                continue
            candidates = moved if alert.looked_at_all else np.flatnonzero(table.active)
            alert.looked_at_all = True
            yield alert, self.newly_inside(alert, candidates, now_us)

    def opened(self, session: Session, had: Collection[bytes] = ()) -> None:
        """A client took a slot; it was addressed these alerts in an earlier session."""
        for alert in self._alerts.values():
            alert.has_it = grown(alert.has_it, session.slot)
            alert.has_it[session.slot] = alert.id in had


class AddressedAlert(NamedTuple):
    """A message that is not for an area."""

    id: bytes
    to: To
    priority: int
    until_us: int  # how long it is kept; the message itself may hold for ever


class MissedAlerts:
    """Messages that a client must get when it reconnects."""

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
        """The valid messages to any of these addresses, the most urgent first."""
        ids = [id for role in roles for id in self._ids_of.get(role, ())]
        owed = [self._alerts[id] for id in ids if id not in seen]
        return sorted((one for one in owed if one.until_us > now_us), key=lambda one: -one.priority)

    def expire(self, now_us: int) -> None:
        for id in [one.id for one in self._alerts.values() if one.until_us <= now_us]:
            self._remove(id)

    def _remove(self, id: bytes) -> None:
        to = self._alerts.pop(id).to
        ids = self._ids_of[to]
        del ids[id]
        if not ids:
            del self._ids_of[to]
