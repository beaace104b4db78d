"""What the sessions of a load declare and receive.

Each entity is declared until that is answered, and renewed, as clients do. What is received is
acknowledged and put in order as they do it, and counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Hashable
from functools import partial
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mercury.client.messages import RETRY_S, compose
from mercury.client.moving_entities import RENEW_S, Pairs
from mercury.load.counters import LoadCounters
from mercury.load.drivers.api import Clock
from mercury.load.drivers.udp_recent import UNKNOWN, RecentUpdates
from mercury.load.sessions import LoadClients
from mercury.load.workload import Workload
from mercury.mediator import Arrival, Incoming
from mercury.model.declarations import DECLARE, Declaration, Matches
from mercury.model.matching import EventReason, EventType, Match
from mercury.model.message import Address, Kind, Message
from mercury.service.clock import epoch_us
from mercury.session import Delivered, SessionState
from mercury.wire import encode, mercury_pb2

# An adapter answers after 0.15 s, so this declares about 3,000 entities a second.
AT_ONCE = 512
_SOMEBODY_ELSE = -1


class _Request(NamedTuple):
    id: UUID
    priority: int
    body: bytes


class LoadDeclarations:
    """One entity for each session, declared in every new session that it gets."""

    def __init__(self, workload: Workload, clients: LoadClients) -> None:
        self.answered: set[int] = set()  # those that the adapter has, or had
        self.refusals: dict[int, str] = {}  # by entity; it is not declared again
        self._workload = workload
        self._clients = clients
        self._waiting: OrderedDict[int, None] = OrderedDict()  # for their turn
        self._requests: dict[int, _Request] = {}  # the last of each entity
        self._asked: OrderedDict[int, float] = OrderedDict()  # without an answer; asked again when
        self._renewed: OrderedDict[int, float] = OrderedDict()  # declared; and when again

    @property
    def is_done(self) -> bool:
        """Whether the adapter has all of them."""
        return len(self.answered) == len(self._workload)

    def connected(self, entity: int) -> None:
        """It has a new session, without declarations."""
        self._asked.pop(entity, None)
        self._renewed.pop(entity, None)
        if entity not in self.refusals:
            self._waiting[entity] = None

    def replied(self, entity: int, reply: Message, now: float) -> None:
        """The adapter's answer to a declaration; a refusal may follow an acceptance."""
        request = self._requests.get(entity)
        if request is None or reply.correlation != request.id:
            return
        asked = self._asked.pop(entity, None)
        if "error" in reply.values:
            self.refusals[entity] = str(reply.values["error"])
            self._renewed.pop(entity, None)
            self._waiting.pop(entity, None)
        elif asked is not None:
            self.answered.add(entity)
            self._renewed[entity] = now + RENEW_S

    def work(self, now: float) -> list[int]:
        """Prepare what is due; returns the sessions that have something to send."""
        for entity in _due(self._renewed, now):
            self._waiting[entity] = None
        said = [entity for entity in _due(self._asked, now) if self._say(entity, now)]
        while self._waiting and len(self._asked) < AT_ONCE:
            entity, _ = self._waiting.popitem(last=False)
            address = Address.client(self._workload.id_of(entity))
            what = Declaration(self._workload.declaration(entity))
            message = compose(address, Kind.REQUEST, DECLARE, what)
            self._requests[entity] = _Request(message.id, message.priority, encode(message))
            if self._say(entity, now):
                said.append(entity)
        return said

    def _say(self, entity: int, now: float) -> bool:
        session, request = self._clients.sessions[entity], self._requests[entity]
        if session.state is not SessionState.ESTABLISHED:
            return False  # its next session begins anew
        session.send_body(Kind.REQUEST, request.priority, request.body)
        self._asked[entity] = now + RETRY_S
        return True


class _Event(NamedTuple):
    """An event as it will be counted."""

    subscription: int  # entities
    publication: int
    match: Match  # its time is of the adapter's clock
    arrived_us: int


class LoadReceiver:
    """Receives for the sessions; `count` adds to the counters, many events at once."""

    def __init__(
        self,
        workload: Workload,
        clients: LoadClients,
        recent: RecentUpdates,
        clock: Clock,
        counters: LoadCounters,
    ) -> None:
        self.newest_us = 0  # when the last event came that was of a new update
        self._clients = clients
        self._recent = recent
        self._clock = clock
        self._counters = counters
        self._epoch_us = epoch_us()
        self._incoming = Incoming(max_sources=len(workload))
        # Publications bear the name of their client, too.
        self._publications = {
            f"{name}/{name}": entity
            for entity, name in enumerate(map(workload.id_of, range(len(workload))))
        }
        self._dropped: Counter[str] = Counter()
        self._pairs = defaultdict[int, Pairs](partial(Pairs, self._dropped))  # by subscription
        self._events: list[_Event] = []
        # By subscription and publication: the updates that the last event was of, while inside.
        self._last_updates: dict[tuple[int, int], tuple[int, int]] = {}
        self._untimed = 0
        for entity, session in enumerate(clients.sessions):
            session.piggybacked = partial(self._piggybacked, entity)

    def is_new(self, entity: int, delivered: Delivered, now: float) -> bool:
        """Note the receipt to send, if one is asked for; False for a duplicate."""
        if not delivered.wants_receipt:
            return True
        message = delivered.message
        until = (message.expires_us - self._epoch_us) / 1e6 if message.expires_us else None
        arrival = self._incoming.receive(
            str(entity), message.id.bytes, now, acknowledge=True, until=until
        )
        return arrival is Arrival.NEW

    def take(self, entity: int, message: Message) -> None:
        """Take matches; early ones are held until the missing ones come."""
        if not isinstance(message.payload, Matches):
            return
        arrived_us = self._clock()
        for numbered in message.payload.rows:
            for match in self._pairs[entity].take(numbered):
                publication = self._publications.get(match.publication, _SOMEBODY_ELSE)
                self._events.append(_Event(entity, publication, match, arrived_us))

    def work(self, now: float) -> list[int]:
        """Prepare receipts that no report carried; returns the sessions with something to send."""
        said = []
        for sender, answers in self._incoming.answers_due(now):
            session = self._clients.sessions[int(sender)]
            if session.state is SessionState.ESTABLISHED:  # otherwise the copy is sent again
                session.send_receipts(_encoded(answers), now)
                said.append(int(sender))
        return said

    def count(self) -> None:
        """Count the events since the last call."""
        events, self._events = self._events, []
        # Before the run begins, entities that are near already match.
        if not events or not self._counters.count_from_us:
            return
        subscription = np.array([event.subscription for event in events])
        publication = np.array([event.publication for event in events])
        arrived_us = np.array([event.arrived_us for event in events])
        matches = [event.match for event in events]
        event_type = np.array([match.event_type for match in matches], np.uint8)
        reason = np.array([match.reason for match in matches], np.uint8)
        lat = np.array([match.lat for match in matches])
        lon = np.array([match.lon for match in matches])
        distance_m = np.array([match.distance_m for match in matches])
        time_us = np.array([match.time_us for match in matches])
        met = self._recent.find(publication, subscription, lat, lon, distance_m, time_us)
        moved = reason == EventReason.MOVED
        known = moved & (met.due_us != UNKNOWN)
        self._untimed += int((moved & ~known).sum())
        # An adapter repeats an entity's position when that is renewed: no update was due.
        anew = known.copy()
        updates = zip(met.publication.tolist(), met.subscription.tolist(), strict=True)
        for row, (event, pair) in enumerate(zip(events, updates, strict=True)):
            key = event.subscription, event.publication
            anew[row] &= self._last_updates.get(key) != pair
            if event.match.event_type is EventType.EXIT:
                self._last_updates.pop(key, None)
            else:
                self._last_updates[key] = pair
        again = known & ~anew
        if not again.all():
            self.newest_us = int(arrived_us[-1])
        self._counters.add(event_type[anew], reason[anew], met.due_us[anew], arrived_us[anew])
        self._counters.count(event_type[again], met.due_us[again])
        self._counters.count(event_type[~known], time_us[~known])

    def note(self) -> None:
        """Note what the counts do not include."""
        if self._untimed:
            self._counters.note(
                f"{self._untimed:,} events are of publications of others or of updates of long ago,"
                " and not in the latency"
            )
        gaps = sum(pairs.has_gap for pairs in self._pairs.values())
        if gaps:
            self._counters.note(f"{gaps:,} subscriptions miss events that did not arrive")

    def _piggybacked(self, entity: int) -> bytes:
        answers = self._incoming.take_answers(str(entity))
        return _encoded(answers) if answers else b""


def _due(times: OrderedDict[int, float], now: float) -> list[int]:
    """Remove and return those whose time has come; they are ordered by it."""
    due = []
    while times and next(iter(times.values())) <= now:
        due.append(times.popitem(last=False)[0])
    return due


def _encoded(answers: list[tuple[Hashable, str]]) -> bytes:
    ids = [id for id, _ in answers if isinstance(id, bytes)]
    return mercury_pb2.Envelope(received=ids).SerializeToString()
