"""What the sessions of a load receive: acknowledged and put in order as clients do, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import partial
from typing import NamedTuple

import numpy as np

from mercury.client.pairs import Pairs
from mercury.load.drivers.api import Clock
from mercury.load.drivers.udp_recent import UNKNOWN, RecentUpdates
from mercury.load.sessions import LoadClients
from mercury.load.tally import Tally
from mercury.load.workload import Workload
from mercury.mediator import Arrival, Incoming
from mercury.model.declarations import Matches
from mercury.model.matching import EventReason, EventType
from mercury.model.message import Message
from mercury.service.clock import epoch_us
from mercury.session import Delivered, SessionState
from mercury.wire import mercury_pb2

_SOMEBODY_ELSE = -1


class _Event(NamedTuple):
    """An event as it will be counted."""

    subscription: int  # entities
    publication: int
    event_type: int
    reason: int
    lat: float
    lon: float
    distance_m: float
    time_us: int  # of the adapter's clock
    arrived_us: int


class Hearing:
    """Takes what comes for the sessions; `count` puts it into the tally, many events at once."""

    def __init__(
        self,
        workload: Workload,
        clients: LoadClients,
        recent: RecentUpdates,
        clock: Clock,
        tally: Tally,
    ) -> None:
        self.news_us = 0  # when the last event came that was of a new update
        self._clients = clients
        self._recent = recent
        self._clock = clock
        self._tally = tally
        self._epoch_us = epoch_us()
        self._incoming = Incoming(max_sources=len(workload))
        # Publications bear the name of their client, too.
        self._publications = {
            f"{name}/{name}": entity
            for entity, name in enumerate(map(workload.id_of, range(len(workload))))
        }
        self._dropped: Counter[str] = Counter()
        self._pairs: dict[int, Pairs] = {}  # by subscription
        self._events: list[_Event] = []
        # By subscription and publication: the updates that the last event was of, while inside.
        self._last_updates: dict[tuple[int, int], tuple[int, int]] = {}
        self._untimed = 0
        for entity, session in enumerate(clients.sessions):
            session.piggybacked = partial(self._piggybacked, entity)

    def is_new(self, entity: int, delivered: Delivered, now: float) -> bool:
        """Owe the adapter its receipt, if it wants one; False for what came before."""
        if not delivered.wants_receipt:
            return True
        message = delivered.message
        until = (message.expires_us - self._epoch_us) / 1e6 if message.expires_us else None
        arrival = self._incoming.receive(
            str(entity), message.id.bytes, now, acknowledge=True, until=until
        )
        return arrival is Arrival.NEW

    def take(self, entity: int, message: Message) -> None:
        """Take matches; what came too early waits for what is missing."""
        if not isinstance(message.payload, Matches):
            return
        arrived_us = self._clock()
        pairs = self._pairs.get(entity)
        if pairs is None:
            pairs = self._pairs[entity] = Pairs(self._dropped)
        for numbered in message.payload.rows:
            for match in pairs.take(numbered):
                publication = self._publications.get(match.publication, _SOMEBODY_ELSE)
                self._events.append(
                    _Event(
                        entity,
                        publication,
                        int(match.event_type),
                        int(match.reason),
                        match.lat,
                        match.lon,
                        match.distance_m,
                        match.time_us,
                        arrived_us,
                    )
                )

    def work(self, now: float) -> list[int]:
        """Send the receipts that found no report to ride on; returns who has something to send."""
        said = []
        for sender, answers in self._incoming.answers_due(now):
            session = self._clients.sessions[int(sender)]
            if session.state is SessionState.ESTABLISHED:  # otherwise the copy comes again
                session.send_receipts(_encoded(answers), now)
                said.append(int(sender))
        return said

    def count(self) -> None:
        """Count what has come since the last time."""
        events, self._events = self._events, []
        # Before the run begins, everybody meets who is near already.
        if not events or not self._tally.count_from_us:
            return
        columns = [np.array(column) for column in zip(*events, strict=True)]
        subscription, publication, event_type, reason = (
            one.astype(np.int64) for one in columns[:4]
        )
        lat, lon, distance_m, time_us, arrived_us = columns[4:]
        met = self._recent.find(publication, subscription, lat, lon, distance_m, time_us)
        moved = reason == EventReason.MOVED
        known = moved & (met.due_us != UNKNOWN)
        self._untimed += int((moved & ~known).sum())
        # An adapter says again where an entity is, when that is declared again: nothing was due.
        anew = known.copy()
        updates = zip(met.publication.tolist(), met.subscription.tolist(), strict=True)
        for row, (event, pair) in enumerate(zip(events, updates, strict=True)):
            key = event.subscription, event.publication
            anew[row] &= self._last_updates.get(key) != pair
            if event.event_type == EventType.EXIT:
                self._last_updates.pop(key, None)
            else:
                self._last_updates[key] = pair
        event_type, reason = event_type.astype(np.uint8), reason.astype(np.uint8)
        again = known & ~anew
        if not again.all():
            self.news_us = int(arrived_us[-1])
        self._tally.tell(event_type[anew], reason[anew], met.due_us[anew], arrived_us[anew])
        self._tally.count(event_type[again], met.due_us[again])
        self._tally.count(event_type[~known], time_us[~known])

    def note(self) -> None:
        """Say what is missing in the counts."""
        if self._untimed:
            self._tally.note(
                f"{self._untimed:,} events are of publications of others or of updates of long ago,"
                " and not in the latency"
            )
        gaps = sum(pairs.has_gap for pairs in self._pairs.values())
        if gaps:
            self._tally.note(f"{gaps:,} subscriptions miss events that did not arrive")

    def _piggybacked(self, entity: int) -> bytes:
        answers = self._incoming.take_answers(str(entity))
        return _encoded(answers) if answers else b""


def _encoded(answers: list[tuple[Hashable, str]]) -> bytes:
    ids = [id for id, _ in answers if isinstance(id, bytes)]
    return mercury_pb2.Envelope(received=ids).SerializeToString()
