"""The engine: moving publications and subscriptions in, what happened to pairs out."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.matching import cell_sizes, kernel
from mercury.matching import layout as at
from mercury.matching.cell_lists import remove_from_cells
from mercury.matching.cells import MAX_TOPICS, on_sphere
from mercury.matching.contents import Contents
from mercury.matching.events import Events
from mercury.matching.outline import Outline
from mercury.matching.snapshot import Entity, entity_from_json, entity_to_json, pack, unpack
from mercury.matching.store import Store
from mercury.model.area import Polygon, Position
from mercury.model.errors import MatchingError
from mercury.model.matching import EventReason, NearSubscription, Publication, Side

_ASKED_ONCE = "\0"  # the name of a query's subscription


@dataclass(frozen=True, slots=True)
class MatchingRules:
    """The limits and defaults of an engine; the same for every worker of one system."""

    overlap: bool = False  # a publication's own scope counts, too, not its centre alone
    hysteresis_m: float = 10.0  # of subscriptions that give none
    ttl_s: float = 60.0  # of entities that give none
    max_radius_m: float = 50_000.0  # of a subscription's scope
    max_publication_radius_m: float = 5_000.0
    topics: frozenset[str] | None = None  # None: any

    def check(self, topic: str, radius_m: float, *, publication: bool) -> None:
        """Raise for what these rules do not allow."""
        if self.topics is not None and topic not in self.topics:
            raise MatchingError(f"there is no topic {topic!r} here", "topic")
        largest = self.max_publication_radius_m if publication else self.max_radius_m
        if radius_m > largest:
            raise MatchingError(
                f"a scope of {radius_m / 1000:,.1f} km is wider than the {largest / 1000:,.1f} km"
                " allowed here",
                "radius",
            )


class NearbyPublication(NamedTuple):
    """A publication in the answer to a query."""

    publication: Publication
    reference: int
    lat: float
    lon: float
    distance_m: float
    time_us: int  # of its last position


class Engine:
    """Keeps positions and matching pairs; a core: it has no clock of its own.

    Entities are identified by reference, a number that is theirs until they are removed.
    """

    def __init__(self, rules: MatchingRules | None = None) -> None:
        self.rules = rules or MatchingRules()
        self.dropped: Counter[str] = Counter()
        self.store = Store()
        self._contents = Contents()
        self._topics: dict[str, int] = {}
        self._entities: dict[int, Entity] = {}  # by slot
        self._slots: dict[Side, dict[str, int]] = {"publication": {}, "subscription": {}}
        self._free: list[int] = []
        self._used = 0
        self._edges_used = 0
        self._gone: dict[int, Entity] = {}
        self._going: dict[int, Entity] = {}
        self._events: list[Events] = []
        self._next_expiry_us = at.NEVER_US  # no entity expires before
        self._events_taken = 0

    # Declarations

    def publish(self, publication: Publication, time_us: int) -> int:
        """Add or change a publication; returns its reference."""
        if (known := self._said_again(publication, time_us)) is not None:
            return known
        self.rules.check(publication.topic, publication.radius_m, publication=True)
        radius_m = publication.radius_m if self.rules.overlap else 0.0
        slot = self._slot_for(publication, at.PUBLICATION, time_us)
        store = self.store
        if store.numbers[slot * 8 + at.RADIUS] != radius_m:
            remove_from_cells(slot, store.all_arrays())
            store.numbers[slot * 8 + at.RADIUS] = radius_m
        return self._store_entity(slot, publication, time_us)

    def subscribe(self, subscription: NearSubscription, time_us: int) -> int:
        """Add or change a subscription; returns its reference."""
        if (known := self._said_again(subscription, time_us)) is not None:
            return known
        outline = None if subscription.polygon is None else Outline.of(subscription.polygon)
        radius_m = outline.radius_m if outline else subscription.radius_m
        assert radius_m is not None
        self.rules.check(subscription.topic, radius_m, publication=False)
        kind = at.CIRCLE if outline is None else at.POLYGON
        slot = self._slot_for(subscription, kind, time_us)
        store = self.store
        numbers = store.numbers[slot * 8 : slot * 8 + 8]
        store.states[slot * 16 + at.WANTS] = at.WANTS_INSIDE if subscription.inside else 0
        if outline is not None or numbers[at.RADIUS] != radius_m:
            remove_from_cells(slot, store.all_arrays())
            numbers[at.RADIUS] = radius_m
        hysteresis_m = subscription.hysteresis_m
        numbers[at.SLACK] = self.rules.hysteresis_m if hysteresis_m is None else hysteresis_m
        dwell_s = subscription.dwell_s
        dwell_us = -1 if dwell_s is None else round(dwell_s * 1e6)
        if store.clocks[slot * 8 + at.DWELL] != dwell_us:
            store.clocks[slot * 8 + at.DWELL] = dwell_us
            store.counters[at.NEXT_DWELL_US] = -at.NEVER_US  # pairs may be due for dwell
        if outline is not None:
            self._draw(slot, outline)
        return self._store_entity(slot, subscription, time_us)

    def find(self, side: Side, entity_id: str) -> int | None:
        slot = self._slots[side].get(entity_id)
        return None if slot is None else self._reference(slot)

    def heard_us(self, reference: int) -> int:
        """The time of an entity's last update; the entity must exist."""
        return int(self.store.clocks[(reference & at.SLOT_MASK) * 8 + at.TIME])

    def publication(self, reference: int) -> Publication | None:
        """A publication by reference, also for a while after its removal."""
        entity = self._entity(reference)
        return entity if isinstance(entity, Publication) else None

    def subscription(self, reference: int) -> NearSubscription | None:
        """A subscription by reference, also for a while after its removal."""
        entity = self._entity(reference)
        return entity if isinstance(entity, NearSubscription) else None

    def statistics(self) -> dict[str, float]:
        return {
            "publications": len(self._slots["publication"]),
            "subscriptions": len(self._slots["subscription"]),
            "pairs": int(self.store.counters[at.ALIVE_PAIRS]),
            "updates": int(self.store.counters[at.UPDATES]),
            "events": self._events_taken,
        }

    # Updates and events

    def move(
        self,
        references: ArrayLike,
        lats: ArrayLike,
        lons: ArrayLike,
        times_us: ArrayLike,
        accuracy_m: ArrayLike = 0.0,
    ) -> None:
        """Update positions of entities, in order; invalid updates are counted."""
        refs = np.atleast_1d(np.asarray(references, np.int64))
        count = len(refs)
        self._apply(
            at.MOVE,
            EventReason.MOVED,
            refs & at.SLOT_MASK,
            refs >> 32,
            _column(times_us, np.int64, count),
            _column(lats, np.float64, count),
            _column(lons, np.float64, count),
            _column(accuracy_m, np.float64, count),
        )

    def withdraw(self, reference: int, time_us: int, *, silently: bool = False) -> None:
        """Remove an entity and its pairs, without events if another engine continues them."""
        slot = reference & at.SLOT_MASK
        if slot in self._entities and self._reference(slot) == reference:
            self._remove(
                np.array([slot]), np.array([time_us]), EventReason.WITHDRAWN, silently=silently
            )

    def tick(self, time_us: int) -> None:
        """Advance time: emit dwell events, remove expired entities."""
        self._gone, self._going = self._going, {}
        self.store.sweep(time_us)
        if time_us >= self._next_expiry_us:
            self._expire(time_us)
        cell_sizes.fit(self.store, self._used)

    def _expire(self, time_us: int) -> None:
        kinds = self.store.states[at.KIND :: 16][: self._used]
        expires = self.store.clocks[at.EXPIRES :: 8][: self._used]
        late = np.flatnonzero((kinds != at.FREE) & (expires <= time_us))
        if len(late):  # in the order of their times
            late = late[np.argsort(expires[late], kind="stable")]
            self._remove(late, expires[late], EventReason.EXPIRED)
        # Updates only extend lifetimes, so none expires before the first of those here now.
        alive = expires[kinds != at.FREE]
        self._next_expiry_us = int(alive.min()) if len(alive) else at.NEVER_US

    def take(self) -> Events:
        """The events since the last call, in order."""
        self._events.append(self.store.take_events())
        events = Events.joined(self._events)
        self._events = []
        self._events_taken += len(events)
        return events

    def near(
        self,
        subscription: NearSubscription,
        lat: float | None = None,
        lon: float | None = None,
        limit: int = 100,
    ) -> list[NearbyPublication]:
        """The publications that a subscription would match now, the nearest first."""
        self._events.append(self.store.take_events())
        if subscription.topic not in self._topics:  # a query creates no topic
            self.rules.check(subscription.topic, subscription.radius_m or 0.0, publication=False)
            return []
        once = replace(subscription, id=_ASKED_ONCE, inside=False, dwell_s=None, ttl_s=1.0)
        reference = self.subscribe(once, 0)
        if once.polygon is None:
            self.move(reference, np.nan if lat is None else lat, np.nan if lon is None else lon, 0)
        events = self.store.take_events()
        self.withdraw(reference, 0, silently=True)
        del self._going[reference]
        found = []
        for row in np.argsort(events.distance_m, kind="stable")[:limit].tolist():
            ref = int(events.publication[row])
            publication = self.publication(ref)
            assert publication is not None
            place = float(events.lat[row]), float(events.lon[row]), float(events.distance_m[row])
            found.append(NearbyPublication(publication, ref, *place, self.heard_us(ref)))
        return found

    def topics(self) -> dict[str, tuple[int, int]]:
        """The number of publications and subscriptions of each topic."""
        states = self.store.states.reshape(-1, at.STATES)[: self._used]
        alive = states[:, at.KIND] != at.FREE
        mine = states[:, at.KIND] == at.PUBLICATION
        count = len(self._topics)
        publications = np.bincount(states[alive & mine, at.TOPIC], minlength=count)
        subscriptions = np.bincount(states[alive & ~mine, at.TOPIC], minlength=count)
        return {
            name: (int(publications[number]), int(subscriptions[number]))
            for name, number in self._topics.items()
            if publications[number] or subscriptions[number]
        }

    def snapshot(self) -> bytes:
        """The whole state; events that were not taken are not part of it."""
        document = {
            "topics": list(self._topics),
            "things": [[slot, entity_to_json(entity)] for slot, entity in self._entities.items()],
            "free": self._free,
            "used": self._used,
            "edges_used": self._edges_used,
        }
        return pack(document, self.store.arrays(self._used, self._edges_used))

    @classmethod
    def restore(cls, data: bytes, rules: MatchingRules | None = None) -> Self:
        """An engine that continues from a snapshot; references stay the same."""
        document, arrays = unpack(data)
        engine = cls(rules)
        engine._topics = {name: number for number, name in enumerate(document["topics"])}
        engine._free, engine._used = document["free"], document["used"]
        engine._edges_used = document["edges_used"]
        engine.store.replace(arrays)
        engine._next_expiry_us = -at.NEVER_US
        for slot, fields in document["things"]:
            entity = entity_from_json(fields)
            engine._entities[slot] = entity
            engine._slots[_side_of(entity)][entity.id] = slot
            engine.store.states[slot * 16 + at.CONTENT] = engine._contents.hold(entity)
        return engine

    # Inside

    def _reference(self, slot: int) -> int:
        return int(self.store.states[slot * 16 + at.GENERATION]) << 32 | slot

    def _entity(self, reference: int) -> Entity | None:
        slot = reference & at.SLOT_MASK
        if slot in self._entities and self._reference(slot) == reference:
            return self._entities[slot]
        return self._going.get(reference) or self._gone.get(reference)

    def _said_again(self, entity: Entity, time_us: int) -> int | None:
        """Renew an entity that is declared again unchanged."""
        slot = self._slots[_side_of(entity)].get(entity.id)
        if slot is None or self._entities[slot] != entity:
            return None
        self._keep_alive(slot, time_us)
        return self._reference(slot)

    def _keep_alive(self, slot: int, time_us: int) -> None:
        clocks = self.store.clocks[slot * 8 : slot * 8 + 8]
        clocks[at.TIME] = max(int(clocks[at.TIME]), time_us)
        clocks[at.EXPIRES] = clocks[at.TIME] + clocks[at.TTL]
        self._next_expiry_us = min(self._next_expiry_us, int(clocks[at.EXPIRES]))

    def _slot_for(self, entity: Entity, kind: int, time_us: int) -> int:
        """The slot of an entity; one that existed keeps its position."""
        topic = self._topics.get(entity.topic)
        if topic is None:
            topic = len(self._topics)
            if topic == MAX_TOPICS:
                raise MatchingError(f"there are {MAX_TOPICS:,} topics already", "topic")
            self._topics[entity.topic] = topic
            if 2 * topic >= len(self.store.levels):
                self.store.grow_topics(2 * topic)
        slots = self._slots[_side_of(entity)]
        slot = slots.get(entity.id)
        position: NDArray[np.float64] | None = None
        last_us = -at.NEVER_US
        if slot is not None:
            states = self.store.states[slot * 16 : slot * 16 + 16]
            if states[at.TOPIC] == topic and states[at.KIND] == kind:
                return slot
            # Another topic or kind of scope: its pairs end, and it starts anew at its position.
            if states[at.KIND] != at.POLYGON and kind != at.POLYGON:
                position = self.store.numbers[slot * 8 : slot * 8 + 8].copy()
            last_us = int(self.store.clocks[slot * 8 + at.TIME])
            self._remove(np.array([slot]), np.array([time_us]), EventReason.CHANGED)
        store = self.store
        slot = self._free.pop() if self._free else self._used
        if slot == self._used:
            self._used += 1
            if slot >= store.capacity:
                store.grow_entities(2 * store.capacity)
        generation = store.states[slot * 16 + at.GENERATION]
        store.numbers[slot * 8 : slot * 8 + 8] = _NOWHERE if position is None else position
        store.clocks[slot * 8 : slot * 8 + 8] = _NO_CLOCKS
        store.clocks[slot * 8 + at.TIME] = last_us
        states = store.states[slot * 16 : slot * 16 + 16]
        states[:] = _ALONE
        states[at.KIND], states[at.TOPIC], states[at.GENERATION] = kind, topic, generation
        slots[entity.id] = slot
        return slot

    def _draw(self, slot: int, outline: Outline) -> None:
        """Store a polygon's edges for the kernel."""
        store = self.store
        states = store.states[slot * 16 : slot * 16 + 16]
        states[at.EDGES] = 0
        if 4 * (self._edges_used + len(outline.edges)) > len(store.edges):
            self._edges_used = store.gather_edges(self._used, len(outline.edges))
        first = self._edges_used
        self._edges_used += len(outline.edges)
        store.edges[4 * first : 4 * self._edges_used] = outline.edges.ravel()
        states[at.EDGE], states[at.EDGES] = first, len(outline.edges)
        numbers = store.numbers[slot * 8 : slot * 8 + 8]
        numbers[[at.X, at.Y, at.Z]] = outline.centre
        numbers[at.LAT], numbers[at.LON] = outline.lat, outline.lon

    def _store_entity(self, slot: int, entity: Entity, time_us: int) -> int:
        """Store a new or changed entity, and match it at once."""
        self._entities[slot] = entity
        before = int(self.store.states[slot * 16 + at.CONTENT])
        self.store.states[slot * 16 + at.CONTENT] = self._contents.hold(entity)
        self._contents.release(entity, before)
        clocks = self.store.clocks[slot * 8 : slot * 8 + 8]
        clocks[at.TTL] = round((self.rules.ttl_s if entity.ttl_s is None else entity.ttl_s) * 1e6)
        self._keep_alive(slot, time_us)
        if not math.isnan(self.store.numbers[slot * 8 + at.LAT]):
            self._operate(at.JUDGE, EventReason.CHANGED, np.array([slot]), np.array([time_us]))
        return self._reference(slot)

    def _remove(
        self,
        slots: NDArray[np.int64],
        times_us: NDArray[np.int64],
        reason: EventReason,
        *,
        silently: bool = False,
    ) -> None:
        store = self.store
        self._operate(at.REMOVE_SILENTLY if silently else at.REMOVE, reason, slots, times_us)
        for slot in slots.tolist():
            entity = self._entities.pop(slot)
            self._going[self._reference(slot)] = entity
            self._contents.release(entity, int(store.states[slot * 16 + at.CONTENT]))
            del self._slots[_side_of(entity)][entity.id]
            generation = int(store.states[slot * 16 + at.GENERATION])
            store.states[slot * 16 + at.GENERATION] = generation % 0x7FFFFFFF + 1
            self._free.append(slot)

    def _operate(
        self,
        operation: int,
        reason: EventReason,
        slots: NDArray[np.int64],
        times_us: NDArray[np.int64],
    ) -> None:
        nowhere = np.zeros(len(slots))
        generations = self.store.states[at.GENERATION :: 16][slots].astype(np.int64)
        self._apply(operation, reason, slots, generations, times_us, nowhere, nowhere, nowhere)

    def _apply(
        self,
        operation: int,
        reason: EventReason,
        slots: NDArray[np.int64],
        generations: NDArray[np.int64],
        times_us: NDArray[np.int64],
        lats: NDArray[np.float64],
        lons: NDArray[np.float64],
        accuracies_m: NDArray[np.float64],
    ) -> None:
        store, counters = self.store, self.store.counters
        counters[at.ROW] = counters[at.PHASE] = 0
        points = np.empty((3, len(slots)))
        on_sphere(lats, lons, points)
        # The kernel takes a plain number: for an enum's member it would be compiled anew.
        what, where = (operation, int(reason), slots, generations), (lats, lons, points)
        updates = (*what, *where, times_us, accuracies_m)
        while (wanted := kernel.apply(*updates, store.all_arrays())) != at.DONE:
            if wanted == at.A_VERDICT:
                asked = (int(counters[at.FILTER]), int(counters[at.CONTENT_ASKED]))
                store.note_verdict(self._contents.passes(*asked))
            else:
                store.provide(wanted)
        for dropped, counter in _DROPPED.items():
            if counters[counter]:
                self.dropped[dropped] += int(counters[counter])
                counters[counter] = 0


def warm_up() -> None:
    """Compile the machine code, which is cached after the first time (half a minute)."""
    engine = Engine()
    triangle = Polygon((Position(0.0, 0.0), Position(0.0, 0.01), Position(0.01, 0.0)))
    beside = [
        engine.publish(Publication("a", "a"), 0),
        engine.subscribe(NearSubscription("a", "a", 1.0, where="a == 1", dwell_s=0.0), 0),
        engine.subscribe(NearSubscription("b", "a", polygon=triangle), 0),
    ]
    engine.move(beside, np.zeros(3), np.zeros(3), np.ones(3, np.int64))
    engine.store.provide(at.MORE_TABLE)
    engine.store.rebuild_cells(0, len(beside))
    for reference in beside[1:]:
        engine.withdraw(reference, 1)
    engine.tick(1 << 50)
    engine.take()


# The rows of a new entity.
_NOWHERE = np.zeros(at.NUMBERS)
_NOWHERE[at.LAT] = np.nan
_NO_CLOCKS = np.zeros(at.CLOCKS, np.int64)
_NO_CLOCKS[at.DWELL] = -1
_ALONE = np.zeros(at.STATES, np.int32)
_ALONE[[at.HEAD, at.RECORD]] = -1

_DROPPED = {"late": at.LATE, "unknown": at.UNKNOWN, "no-position": at.NOWHERE}


def _side_of(entity: Entity) -> Side:
    return "publication" if isinstance(entity, Publication) else "subscription"


def _column(values: ArrayLike, kind: type, count: int) -> NDArray[Any]:
    column: NDArray[Any] = np.asarray(values, kind)
    if column.shape == (count,) and column.flags.c_contiguous and column.flags.writeable:
        return column
    return np.array(np.broadcast_to(column, (count,)))  # the kernel knows one kind of array only
