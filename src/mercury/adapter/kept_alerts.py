"""Alerts kept while they are valid, for clients that come later.

An alert for an area also reaches clients that enter it; one for a client, a group or everyone also
those that connect again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.geo import contains
from mercury.geo.arrays import grown
from mercury.geo.containment import prepare
from mercury.mediator import Room
from mercury.model.area import Area
from mercury.session import Session, SessionTable

# Whom a message is for: ("client", name), ("group", name) or EVERYONE.
To = tuple[str, str]
EVERYONE: To = ("everyone", "")

Rows = NDArray[np.int64]
Sessions = NDArray[np.int64]

_FIRST_CAPACITY = 256
_FEW = 64
_SLOT_BITS = 32
_SLOT = (1 << _SLOT_BITS) - 1
_LATEST_US = 2**63 - 1
_ROUNDING_DEG = 1e-6
_BLOCK = 65_536  # alerts
_MAX_PAIRS = 500_000  # of alerts and clients that are looked at in one go
_REPEATED = 20_000  # ids of messages that may come again, as from a broker that repeats its work


@dataclass(slots=True, eq=False)
class StandingAlert:
    """An alert and the clients that have it."""

    id: bytes
    area: Area
    priority: int
    row: int  # index into the columns
    number: int  # of those that came, this one included
    sessions: Sessions  # that have it, ascending


class StandingAlerts:
    """Sends each alert once to every client that is inside its area or enters it.

    Boxes around the areas and the times of the alerts are columns, so that the few that a client
    may have entered are found with some array operations, however many there are.
    """

    def __init__(
        self, table: SessionTable, max_alerts: int = 10_000, max_per_client: int = 1000
    ) -> None:
        self.shed = 0  # alerts that made room for others
        self._table = table
        self._alerts: dict[bytes, StandingAlert] = {}
        self._room = Room(max_alerts, max_per_client)
        self._at: list[StandingAlert | None] = []  # by row
        self._free: list[int] = []
        self._count = 0
        self._box: NDArray[np.float64] = np.full((_FIRST_CAPACITY, 4), np.nan)
        self._from_us: NDArray[np.int64] = np.zeros(_FIRST_CAPACITY, np.int64)
        self._until_us: NDArray[np.int64] = np.zeros(_FIRST_CAPACITY, np.int64)
        # Before that, clients that do not move are checked, too.
        self._looked_at_all: NDArray[np.bool_] = np.zeros(_FIRST_CAPACITY, bool)

    def __len__(self) -> int:
        return len(self._alerts)

    def add(
        self, id: bytes, area: Area, priority: int, until_us: int, source: str = ""
    ) -> StandingAlert | None:
        """Take an alert; None if it is already known."""
        if id in self._alerts:
            return None
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._at)
            self._at.append(None)
            self._box = grown(self._box, row, np.nan)
            self._from_us = grown(self._from_us, row)
            self._until_us = grown(self._until_us, row)
            self._looked_at_all = grown(self._looked_at_all, row)
        self._count += 1
        alert = StandingAlert(id, area, priority, row, self._count, np.empty(0, np.int64))
        box = prepare(area.shape).box
        self._box[row] = box.south, box.north, box.west, box.width_deg + _ROUNDING_DEG
        self._from_us[row] = area.valid_from_us or 0
        self._until_us[row] = min(until_us, _LATEST_US)
        self._looked_at_all[row] = False
        self._at[row] = self._alerts[id] = alert
        for full in self._room.add(id, source, priority):
            self.shed += 1
            self._forget(self._alerts[full])  # type: ignore[index]
        return alert

    def remove(self, id: bytes) -> None:
        """An alert no longer holds; nothing happens if that is known."""
        alert = self._alerts.get(id)
        if alert is not None:
            self._room.remove(id)
            self._forget(alert)

    def first_look(self, alert: StandingAlert, now_us: int) -> NDArray[np.intp]:
        """The clients that are inside when an alert comes; they have it from now on."""
        begun = self._from_us[alert.row] <= now_us
        self._looked_at_all[alert.row] = begun
        return self._newly_inside(alert, np.flatnonzero(self._table.active), now_us)

    def due(self, now_us: int) -> Iterator[tuple[StandingAlert, NDArray[np.intp]]]:
        """Yield the alerts in force and the slots that entered their areas since the last call.

        The most urgent come first.
        """
        taken = np.arange(len(self._at))
        until_us = self._until_us[: len(taken)]
        for row in np.flatnonzero((until_us <= now_us) & (until_us > 0)).tolist():
            self.remove(self._alert_at(row).id)
        table = self._table
        moved = np.flatnonzero(table.moved & table.active)
        table.moved[moved] = False
        in_force = (until_us > now_us) & (self._from_us[: len(taken)] <= now_us)
        looked_at = self._looked_at_all[: len(taken)]
        entered = self._boxes_entered(taken[in_force & looked_at], moved)
        everybody = np.flatnonzero(table.active)
        entered |= dict.fromkeys(taken[in_force & ~looked_at].tolist(), everybody)
        self._looked_at_all[: len(taken)] |= in_force
        alerts = [self._alert_at(row) for row in entered]
        for alert in sorted(alerts, key=lambda alert: (-alert.priority, alert.number)):
            if self._alerts.get(alert.id) is alert:
                yield alert, self._newly_inside(alert, entered[alert.row], now_us)

    def opened(self, session: Session, had: Collection[bytes] = ()) -> None:
        """A client opened a session; it was addressed these alerts in an earlier one."""
        for id in had:
            alert = self._alerts.get(id)
            if alert is not None:  # no session has it before it is opened
                self._note(alert, self._sessions_in(np.array([session.slot])))

    def _boxes_entered(self, rows: Rows, moved: NDArray[np.intp]) -> dict[int, NDArray[np.intp]]:
        """Which of these slots are in the boxes around the alerts in these rows, by row."""
        if not len(rows) or not len(moved):
            return {}
        table = self._table
        order = moved[np.argsort(table.lat[moved])]
        order = order[~np.isnan(table.lat[order])]
        lats, lons = table.lat[order], table.lon[order]
        first = np.searchsorted(lats, self._box[rows, 0], "left")
        counts = np.searchsorted(lats, self._box[rows, 1], "right") - first
        found: dict[int, NDArray[np.intp]] = {}
        # So many alerts at once that their pairs with clients take little memory.
        block = 0
        while block < len(rows):
            ahead = np.cumsum(counts[block : block + _BLOCK])
            end = block + max(1, int(np.searchsorted(ahead, _MAX_PAIRS, "right")))
            here = slice(block, end)
            block = end
            count = counts[here]
            starts = np.cumsum(count) - count
            row = np.repeat(rows[here], count)
            index = np.arange(count.sum()) + np.repeat(first[here] - starts, count)
            west, width = self._box[row, 2], self._box[row, 3]
            # A pole has every longitude.
            near = ((lons[index] - west) % 360.0 <= width) | (np.abs(lats[index]) == 90.0)
            row, index = row[near], index[near]
            cuts = np.flatnonzero(np.diff(row)) + 1
            for one, slots in zip(
                row[np.concatenate([[0], cuts])[: len(row)]].tolist(),
                np.split(order[index], cuts),
                strict=False,
            ):
                found[one] = np.sort(slots)
        return found

    def _newly_inside(
        self, alert: StandingAlert, candidates: NDArray[np.intp], now_us: int
    ) -> NDArray[np.intp]:
        """The candidates that are inside and did not have it; they have it from now on."""
        table = self._table
        if len(alert.sessions):
            sessions = self._sessions_in(candidates)
            at = np.minimum(alert.sessions.searchsorted(sessions), len(alert.sessions) - 1)
            candidates = candidates[alert.sessions[at] != sessions]
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
        if len(found):
            self._note(alert, self._sessions_in(found))
        return found

    def _note(self, alert: StandingAlert, sessions: Sessions) -> None:
        """These have it; sessions that have ended are forgotten now and then."""
        had = alert.sessions
        if len(had) > 2 * len(self._table) + _FEW:
            slots = (had & _SLOT).astype(np.intp)
            had = had[self._table.active[slots] & (self._sessions_in(slots) == had)]
        sessions = np.sort(sessions)
        alert.sessions = np.insert(had, had.searchsorted(sessions), sessions)

    def _sessions_in(self, slots: NDArray[np.intp]) -> Sessions:
        """The sessions in these slots: a number that no other one has."""
        generations = self._table.generation[slots].astype(np.int64)
        sessions: Sessions = (generations << _SLOT_BITS) | slots
        return sessions

    def _alert_at(self, row: int) -> StandingAlert:
        alert = self._at[row]
        assert alert is not None
        return alert

    def _forget(self, alert: StandingAlert) -> None:
        del self._alerts[alert.id]
        self._at[alert.row] = None
        self._until_us[alert.row] = 0
        self._free.append(alert.row)


class AddressedAlert(NamedTuple):
    """A message that is not for an area."""

    id: bytes
    to: To
    priority: int
    until_us: int  # how long it is kept; the message itself may hold for ever


class MissedAlerts:
    """Messages that a client must get when it reconnects, until they are `done`."""

    def __init__(self) -> None:
        self._alerts: dict[bytes, AddressedAlert] = {}
        self._ids_of: dict[To, dict[bytes, None]] = {}  # by whom they are for
        self._done: OrderedDict[bytes, None] = OrderedDict()  # ids of late, the oldest first

    def __len__(self) -> int:
        return len(self._alerts)

    def add(self, alert: AddressedAlert) -> bool:
        """Keep an alert; False if it is already known."""
        if alert.id in self._alerts or alert.id in self._done:
            return False
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

    def done(self, id: bytes) -> None:
        """Nobody will need a message any more: it has ended, or whom it is for has it."""
        alert = self._alerts.pop(id, None)
        if alert is None:
            return
        ids = self._ids_of[alert.to]
        del ids[id]
        if not ids:
            del self._ids_of[alert.to]
        self._done[id] = None
        if len(self._done) > _REPEATED:
            self._done.popitem(last=False)
