"""What clients ask once: a subscription that ends with its answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from mercury.adapter.entities import Entities, Entity
from mercury.model.declarations import MAX_ASKED, Matches, NumberedMatch
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, Match, entity_key
from mercury.session import Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import subscription_from_pb

# Nobody says that this was all: an answer is what came by then, or until nothing more came.
ANSWER_AFTER_S = 0.5
QUIET_S = 0.1
_AT_ONCE = 8  # questions of one client
_TTL_S = 10.0  # should its end not arrive
_MAX_BYTES = 48_000
_ROW_BYTES = 64


@dataclass(slots=True, eq=False)
class OpenQuery:
    """A question that is being answered."""

    session: Session
    request: bytes
    entity: Entity
    limit: int
    due: float
    quiet_at: float
    found: dict[str, tuple[int, Match]] = field(default_factory=dict)  # by publication

    def answer(self) -> Matches:
        """The nearest, as many as were asked for and fit into a packet."""
        room = _MAX_BYTES
        chosen: list[NumberedMatch] = []
        for size, match in sorted(self.found.values(), key=lambda one: one[1].distance_m):
            room -= size + _ROW_BYTES
            if room < 0 or len(chosen) == self.limit:
                break
            chosen.append(NumberedMatch(0, 0, match))
        return Matches(tuple(chosen))


class Queries:
    """The questions that are open."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._by_row: dict[int, OpenQuery] = {}
        self._by_request: dict[bytes, OpenQuery] = {}

    def __len__(self) -> int:
        return len(self._by_row)

    def has(self, request: bytes) -> bool:
        """Whether a question is open."""
        return request in self._by_request

    def at(self, row: int) -> OpenQuery | None:
        """The question that an entity is there for."""
        return self._by_row.get(row)

    def ask(self, session: Session, request: bytes, query: pb.NearQuery, now: float) -> Entity:
        """Take a question; returns the subscription to declare for it."""
        mine = [one for one in self._by_row.values() if one.session is session]
        if len(mine) >= _AT_ONCE:
            raise MatchingError(f"a client asks at most {_AT_ONCE} questions at once", "count")
        id = f"?{request.hex()}"
        subscription = query.subscription
        subscription.id = f"{session.identity}/{id}"
        subscription.inside = False
        subscription.ClearField("dwell_s")
        subscription.ttl_s = _TTL_S
        subscription_from_pb(subscription)
        limit = min(query.limit or MAX_ASKED, MAX_ASKED)
        key = entity_key("subscription", subscription.id)
        entity = self._entities.add(session, "subscription", id, key, 0, moves=False)
        entity.declaration.key = key
        entity.declaration.subscription.CopyFrom(subscription)
        asked = OpenQuery(
            session, request, entity, limit, now + ANSWER_AFTER_S, now + ANSWER_AFTER_S
        )
        self._by_row[entity.row] = asked
        self._by_request[request] = asked
        return entity

    def tell(self, asked: OpenQuery, match: Match, size: int, now: float) -> None:
        """Something was found, or is gone again."""
        asked.quiet_at = now + QUIET_S
        if match.event_type is EventType.ENTER:
            asked.found[match.publication] = (size, match)
        elif match.event_type is EventType.EXIT:
            asked.found.pop(match.publication, None)

    def due(self, now: float) -> list[OpenQuery]:
        """Questions whose answer is as good as it gets; they are no more open."""
        due = [one for one in self._by_row.values() if min(one.due, one.quiet_at) <= now]
        for asked in due:
            self._remove(asked)
        return due

    def pop(self, entity: Entity) -> OpenQuery | None:
        """Close the question that an entity is there for."""
        asked = self._by_row.get(entity.row)
        if asked is not None:
            self._remove(asked)
        return asked

    def forget(self, session: Session) -> None:
        """A client is gone."""
        for asked in [one for one in self._by_row.values() if one.session is session]:
            self._remove(asked)

    def _remove(self, asked: OpenQuery) -> None:
        del self._by_row[asked.entity.row]
        del self._by_request[asked.request]
