"""Clients' queries: each a subscription that ends with its answer."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from mercury.adapter.entities import Entities, Entity
from mercury.model.declarations import MAX_ASKED, Matches, NumberedMatch
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, Match, entity_key
from mercury.session import Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import subscription_from_pb

# Matchers send no end mark: the answer is what came within this time, or until a pause.
ANSWER_AFTER_S = 0.5
QUIET_S = 0.1
QUERY_MARK = "?"  # first character of the id of a query's subscription
AT_ONCE = 8  # queries of one client
_TTL_S = 10.0  # in case its withdrawal is lost
_MAX_BYTES = 48_000
_ROW_BYTES = 64


@dataclass(slots=True, eq=False)
class OpenQuery:
    """A query that is being answered."""

    entity: Entity
    limit: int
    due: float
    quiet_at: float = math.inf
    found: dict[str, tuple[int, Match]] = field(default_factory=dict)  # by publication

    def answer(self) -> Matches:
        """The nearest matches, as many as were asked for and fit into a packet."""
        room = _MAX_BYTES
        chosen: list[NumberedMatch] = []
        for size, match in sorted(self.found.values(), key=lambda one: one[1].distance_m):
            room -= size + _ROW_BYTES
            if room < 0 or len(chosen) == self.limit:
                break
            chosen.append(NumberedMatch(0, 0, match))
        return Matches(tuple(chosen))


class Queries:
    """The queries that are open.

    Each operation takes constant time, however many are open.
    """

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self.by_row: dict[int, OpenQuery] = {}  # of its subscription
        self.by_request: dict[bytes, OpenQuery] = {}  # the one to be answered next is the first
        self._fed: OrderedDict[int, OpenQuery] = OrderedDict()  # by row, fed longest ago first

    def __len__(self) -> int:
        return len(self.by_row)

    def ask(self, session: Session, request: bytes, query: pb.NearQuery, now: float) -> Entity:
        """Take a query; returns the subscription to declare for it."""
        if sum(one.row in self.by_row for one in self._entities.of(session)) >= AT_ONCE:
            raise MatchingError(f"a client asks at most {AT_ONCE} queries at once", "count")
        id = f"{QUERY_MARK}{request.hex()}"
        subscription = query.subscription
        subscription.id = f"{session.identity}/{id}"
        subscription.inside = False
        subscription.ClearField("dwell_s")
        subscription.ttl_s = _TTL_S
        subscription_from_pb(subscription)
        limit = min(query.limit or MAX_ASKED, MAX_ASKED)
        key = entity_key("subscription", subscription.id)
        entity = self._entities.add(session, "subscription", id, key, 0, moves=False)
        entity.request = request
        entity.declaration.key = key
        entity.declaration.subscription.CopyFrom(subscription)
        asked = OpenQuery(entity, limit, now + ANSWER_AFTER_S)
        self.by_row[entity.row] = asked
        self.by_request[request] = asked
        return entity

    def feed(self, asked: OpenQuery, match: Match, size: int, now: float) -> None:
        """Add a match, or remove one that has left."""
        asked.quiet_at = now + QUIET_S
        self._fed[asked.entity.row] = asked
        self._fed.move_to_end(asked.entity.row)
        if match.event_type is EventType.ENTER:
            asked.found[match.publication] = (size, match)
        elif match.event_type is EventType.EXIT:
            asked.found.pop(match.publication, None)

    def due(self, now: float) -> list[OpenQuery]:
        """Queries to answer now; they are closed."""
        due = []
        while self._fed and (asked := next(iter(self._fed.values()))).quiet_at <= now:
            due.append(asked)
            self.pop(asked.entity)
        while self.by_request and (asked := next(iter(self.by_request.values()))).due <= now:
            due.append(asked)
            self.pop(asked.entity)
        return due

    def pop(self, entity: Entity) -> OpenQuery | None:
        """Close the query that an entity belongs to."""
        asked = self.by_row.pop(entity.row, None)
        if asked is not None:
            del self.by_request[entity.request]
            self._fed.pop(entity.row, None)
        return asked
