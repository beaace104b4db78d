"""The recipients of a message: by area, by name, by group, now or when they connect later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mercury.adapter.kept_alerts import EVERYONE, AddressedAlert, MissedAlerts, StandingAlerts, To
from mercury.adapter.mediator import AdapterMediator, source_name
from mercury.geo import contains, overlaps
from mercury.geo.arrays import grown
from mercury.model.area import Area
from mercury.model.delivery import KEPT_US
from mercury.model.errors import PacketError
from mercury.model.instant import Instant
from mercury.session import Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire.fields import area_from_pb

# A message without expiry is kept for this long, and read again after a restart.
LOOKBACK_US = KEPT_US
MAX_GROUPS = 100  # of one client


class Addressing:
    """Finds the clients that a message concerns, and those it will concern while it holds."""

    def __init__(
        self,
        mediator: AdapterMediator,
        groups: Mapping[str, Iterable[str]],
        coverage: Area | None,
    ) -> None:
        self.coverage = coverage  # None: everywhere
        settings = mediator.settings
        self.standing = StandingAlerts(
            mediator.table, settings.max_standing, settings.max_messages_per_client
        )
        self.missed = MissedAlerts()
        mediator.when_done = self._done
        self._max_validity_us = int(settings.max_validity_s * 1e6)
        self.groups = Groups(groups)
        self._table = mediator.table
        self._mediator = mediator
        self._counters = mediator.counters
        self._dropped = mediator.dropped
        # Clients that came since the standing alerts were last checked, and what they must get.
        self._returned: list[tuple[Session, list[AddressedAlert]]] = []
        # Ordered messages must not overtake what these clients are still to get: by slot, and the
        # messages with the slots and generations of those who get them after that.
        self._catching_up: NDArray[np.bool_] = np.zeros(len(self._table.active), bool)
        self._held_back: list[tuple[bytes, NDArray[np.intp], NDArray[np.uint32]]] = []

    # Presence

    def opened(
        self, session: Session, groups: Iterable[str], seen: Collection[bytes], now: Instant
    ) -> None:
        """A client has a session: it must get the kept messages that it has not seen."""
        self.groups.set(session, list(groups)[:MAX_GROUPS])
        had = self._mediator.opened(session, seen, now.s)
        self.standing.opened(session, had)
        roles = [EVERYONE, ("client", session.identity), *_roles(self.groups.of(session))]
        self._note_owed(session, roles, had, now.us)

    def closed(self, session: Session) -> None:
        self.groups.closed(session)
        self._mediator.closed(session)

    def _done(self, id: bytes) -> None:
        """A message has left the mediator's table."""
        self.missed.done(id)
        self.standing.remove(id)

    def regrouped(self, session: Session, groups: Iterable[str], now_us: int) -> None:
        fresh = self.groups.set(session, list(groups)[:MAX_GROUPS])
        self._note_owed(session, _roles(fresh), self._mediator.had(session), now_us)

    def _note_owed(
        self, session: Session, roles: list[To], had: Collection[bytes], now_us: int
    ) -> None:
        owed = self.missed.owed_to(roles, had, now_us)
        if owed:
            self._returned.append((session, owed))
            self._mark(np.array([session.slot], np.intp))

    # Messages to clients

    def address(self, envelope: pb.Envelope, body: bytes, appended_us: int, now: Instant) -> None:
        """Address a message to connected clients, and keep it for the others while it is valid."""
        destination = envelope.destination
        which = destination.WhichOneof("target")
        if which == "area":
            self._address_area(envelope, body, appended_us, now)
            return
        if which == "everyone":
            to, slots = EVERYONE, np.flatnonzero(self._table.active)
        elif which == "group":
            to, slots = ("group", destination.group), self.groups.slots(destination.group)
        elif which == "client":
            session = self._table.by_identity.get(destination.client)
            to = ("client", destination.client)
            slots = np.array([] if session is None else [session.slot], np.intp)
        else:
            raise PacketError("no-address")
        until_us = envelope.expires_us or appended_us + LOOKBACK_US
        until_us = min(until_us, appended_us + self._max_validity_us)
        if until_us <= now.us:
            self._dropped["expired"] += 1
        elif self.missed.add(AddressedAlert(envelope.id, to, envelope.priority, until_us)):
            self._post(envelope, body, until_us, slots, now.s)
        else:
            self._dropped["repeated-alert"] += 1

    def _address_area(
        self, envelope: pb.Envelope, body: bytes, appended_us: int, now: Instant
    ) -> None:
        area = area_from_pb(envelope.destination.area)
        ends = [end for end in (area.valid_until_us, envelope.expires_us) if end]
        until_us = min(ends, default=0)
        if not until_us and area.valid_from_us is not None and area.valid_from_us > now.us:
            until_us = area.valid_from_us + LOOKBACK_US  # it must be kept
        if until_us and until_us <= now.us:
            self._dropped["expired"] += 1
            return
        if self.coverage is not None and not overlaps(area, self.coverage):
            self._dropped["outside-coverage"] += 1
            return
        self._counters["area_alerts"] += 1
        table = self._table
        if until_us:
            begins_us = max(appended_us, area.valid_from_us or 0)
            until_us = min(until_us, begins_us + self._max_validity_us)
            alert = self.standing.add(
                envelope.id, area, envelope.priority, until_us, source_name(envelope.source)
            )
            if alert is None:
                self._dropped["repeated-alert"] += 1
                return
            slots = self.standing.first_look(alert, now.us)
        else:
            # For clients connected now; delivery may take a while.
            until_us = appended_us + LOOKBACK_US
            inside = contains(area, table.lat, table.lon, table.heading, now.us)
            slots = np.flatnonzero(inside & table.active)
        self._post(envelope, body, until_us, slots, now.s)

    def _post(
        self, envelope: pb.Envelope, body: bytes, until_us: int, slots: NDArray[np.intp], now: float
    ) -> None:
        own = self._table.by_identity.get(envelope.source.client)
        if own is not None:
            slots = slots[slots != own.slot]  # not to its sender
        if envelope.ordered:
            slots = self._without_those_catching_up(envelope.id, slots)
        self._counters["addressed"] += len(slots)
        self._mediator.post(envelope, body, until_us, self._table.peer[slots], now)

    # Timer

    def due(self, now_us: int) -> Iterator[tuple[bytes, NDArray[np.intp], str]]:
        """Yield what clients that came since the last call must get: id, slots, a counter.

        Also without any client, so that the caller may pause between many alerts.
        """
        returned, self._returned = self._returned, []
        held_back, self._held_back = self._held_back, []
        table = self._table
        if len(self.standing):
            self._mark(np.flatnonzero(table.moved))
        for alert, slots in self.standing.due(now_us):
            yield alert.id, slots, "alerts_on_entry"
        # Only now: an alert for the area that a client reconnects in may be more urgent than
        # one addressed to it by name, and the queue sorts them.
        for session, owed in returned:
            slots = np.array([session.slot], np.intp)
            for one in owed:
                if table.by_identity.get(session.identity) is session:
                    yield one.id, slots, "alerts_on_return"
        for id, slots, generations in held_back:
            yield id, slots[table.generation[slots] == generations], "addressed"
        # Since the call others may have come, and messages for them.
        self._catching_up[:] = False
        for session, _ in self._returned:
            self._catching_up[session.slot] = True
        for _, slots, _ in self._held_back:
            self._catching_up[slots] = True

    # Order

    def _mark(self, slots: NDArray[np.intp]) -> None:
        self._catching_up = grown(self._catching_up, len(self._table.active) - 1)
        self._catching_up[slots] = True

    def _without_those_catching_up(self, id: bytes, slots: NDArray[np.intp]) -> NDArray[np.intp]:
        """Hold an ordered message back from clients that are still to get earlier ones."""
        table = self._table
        self._mark(np.empty(0, np.intp))
        waits = self._catching_up[slots]
        if len(self.standing):  # who moved may have entered the area of one
            waits = waits | table.moved[slots]
        held = slots[waits]
        if not len(held):
            return slots
        self._held_back.append((id, held, table.generation[held]))
        self._catching_up[held] = True
        return slots[~waits]


def _roles(groups: Iterable[str]) -> list[To]:
    return [("group", name) for name in groups]


class Groups:
    """The groups of the clients that have a session here."""

    def __init__(self, configured: Mapping[str, Iterable[str]]) -> None:
        self._configured: dict[str, set[str]] = {}  # by client
        for group, members in configured.items():
            for member in members:
                self._configured.setdefault(member, set()).add(group)
        self._of: dict[str, set[str]] = {}  # by client
        self._members: dict[str, dict[str, Session]] = {}  # by group

    def __len__(self) -> int:
        """The number of groups that somebody here is in."""
        return len(self._members)

    def set(self, session: Session, said: Iterable[str]) -> set[str]:
        """A client says which groups it is in; returns those it is new in."""
        before = self._of.get(session.identity, set())
        groups = self._configured.get(session.identity, set()) | set(said)
        for group in before - groups:
            self._leave(group, session)
        for group in groups:
            self._members.setdefault(group, {})[session.identity] = session
        if groups:
            self._of[session.identity] = groups
        else:
            self._of.pop(session.identity, None)
        return groups - before

    def closed(self, session: Session) -> None:
        """A client has disconnected; when it reconnects it sends its groups again."""
        for group in self._of.pop(session.identity, ()):
            self._leave(group, session)

    def of(self, session: Session) -> Iterable[str]:
        return self._of.get(session.identity, ())

    def slots(self, group: str) -> NDArray[np.intp]:
        """The slots of the members of a group."""
        members = self._members.get(group, {})
        return np.array([session.slot for session in members.values()], np.intp)

    def _leave(self, group: str, session: Session) -> None:
        members = self._members.get(group, {})
        members.pop(session.identity, None)
        if not members:
            self._members.pop(group, None)
