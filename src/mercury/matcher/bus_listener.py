"""The matcher's gateway to the bus: reads `entities`, writes `matches`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mercury.bus import Record
from mercury.geo.arrays import grown
from mercury.matcher.hub import Hub
from mercury.matching import Events
from mercury.matching.layout import SLOT_MASK
from mercury.model.errors import AreaError, FilterError, MatchingError, PacketError
from mercury.model.matching import EventType, Publication, entity_key
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import KeyedDeclaration, Refusal, declaration_from_pb, refusal
from mercury.wire.match_frames import (
    BUCKETS,
    EVENTS,
    MOVES,
    WITHDRAWALS,
    WITHDRAWN_BEFORE_US,
    FrameWriter,
    Rows,
    bucket_key,
    buckets_of,
    from_e7,
    parse_segment,
    rows_of,
    split_frame,
    to_e7,
)


class BusListener:
    """The participant for all declarations that come over the bus."""

    def __init__(self, hub: Hub, append: Callable[[bytes, bytes], None]) -> None:
        self.hub = hub
        self.dropped: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.silent = False  # while catching up
        self._append = append  # key and value of a record on `matches`
        self._refs: dict[int, int] = {}  # key -> reference
        self._subscriptions: dict[int, int] = {}  # reference of a subscription -> key
        # By slot: its last publication, and its key; and by the
        # bucket of subscribers: the revision that was described to them.
        self._pub_refs = np.full(1024, -1, np.int64)
        self._pub_keys = np.zeros(1024, np.uint64)
        self._revisions = np.zeros((1024, BUCKETS), np.int64)

    # From the bus

    def take(self, record: Record) -> None:
        """Process a record of `entities`."""
        try:
            steps = [self._step(kind, data) for kind, data in split_frame(record.value)]
        except PacketError as error:
            self.dropped[error.reason] += 1
            return
        for step in steps:
            step()

    def _step(self, kind: bytes, data: memoryview) -> Callable[[], None]:
        """A segment's work, as a function to call once the whole record is known to be valid."""
        match kind:
            case b"M":
                return partial(self._move, rows_of(data, MOVES))
            case b"D":
                declared = parse_segment(pb.Declarations, data).declaration
                return partial(self._declare_all, [declaration_from_pb(one) for one in declared])
            case b"W":
                return partial(self._withdraw_all, rows_of(data, WITHDRAWALS))
        return lambda: None  # of another topic, or a newer version

    def _declare_all(self, declarations: list[KeyedDeclaration]) -> None:
        refused = [self._declare(one) for one in declarations]
        self._refuse([one for one in refused if one is not None])

    def _withdraw_all(self, rows: Rows) -> None:
        for key, time_us in zip(rows["key"].tolist(), rows["time_us"].tolist(), strict=True):
            self._withdraw(key, time_us)

    def _withdraw(self, key: int, time_us: int) -> None:
        ref = self._refs.get(key)
        if ref is None:
            self.dropped["unknown"] += 1
        elif time_us < self.hub.heard_us(ref) - WITHDRAWN_BEFORE_US:
            self.dropped["late"] += 1
        else:
            del self._refs[key]
            self.hub.withdraw(ref)

    def _move(self, rows: Rows) -> None:
        find = self._refs.get
        refs = np.array([find(key, -1) for key in rows["key"].tolist()], np.int64)
        self.counters["moves"] += len(refs)
        # The engine counts unknown ones.
        self.hub.move(
            refs,
            from_e7(rows["lat_e7"]),
            from_e7(rows["lon_e7"]),
            rows["time_us"].astype(np.int64),
            rows["accuracy_m"].astype(np.float64),
        )

    def _declare(self, declaration: KeyedDeclaration) -> Refusal | None:
        what, key = declaration.what, declaration.key
        if isinstance(what, Refusal):
            return what
        try:
            if isinstance(what, Publication):
                ref = self.hub.publish(what, declaration.time_us)
            else:
                ref = self.hub.subscribe(what, self, declaration.time_us)
                self._subscriptions[ref] = key
        except (MatchingError, FilterError, AreaError) as error:
            return refusal(key, error)
        self._refs[key] = ref
        self.counters["declarations"] += 1
        return None

    def _refuse(self, refused: list[Refusal]) -> None:
        if refused:
            self.dropped["refused"] += len(refused)
        for bucket in sorted({int(buckets_of(one.key)) for one in refused}):
            some = [one for one in refused if buckets_of(one.key) == bucket]
            if not self.silent:
                self._append(bucket_key(bucket), FrameWriter().refuse(some).to_bytes())

    # To the bus

    def notify(self, events: Events) -> None:
        if self.silent:
            return
        subscriptions = self._subscriptions
        keys = [subscriptions.get(ref) for ref in events.subscription.tolist()]
        if None in keys:  # of a subscription that was removed already
            known = np.array([key is not None for key in keys])
            events, keys = events.take(known), [key for key in keys if key is not None]
        if not keys:
            return
        rows = np.zeros(len(events), EVENTS)
        rows["subscription"] = np.array(keys, np.uint64)
        rows["publication"] = self._publications(events)
        rows["time_us"], rows["distance_m"] = events.time_us, events.distance_m
        rows["lat_e7"], rows["lon_e7"] = to_e7(events.lat), to_e7(events.lon)
        rows["event_type"], rows["reason"] = events.event_type, events.reason
        self.counters["matches"] += len(rows)
        buckets = buckets_of(rows["subscription"])
        slots = events.publication & SLOT_MASK
        revisions = self.hub.revisions(slots)
        fresh = (self._revisions[slots, buckets] != revisions) | (
            events.event_type == EventType.ENTER
        )
        self._revisions[slots, buckets] = revisions
        for bucket in np.unique(buckets).tolist():
            here = buckets == bucket
            writer = FrameWriter()
            described = np.unique(events.publication[here & fresh])
            writer.describe(self._descriptions(described.tolist()))
            self._append(bucket_key(bucket), writer.notify(rows[here]).to_bytes())

    def _publications(self, events: Events) -> NDArray[np.uint64]:
        """Keys of the publications, by any owner."""
        slots = events.publication & SLOT_MASK
        most = int(slots.max())
        self._pub_refs = grown(self._pub_refs, most, -1)
        self._pub_keys = grown(self._pub_keys, most)
        self._revisions = grown(self._revisions, most)
        keys = self._pub_keys[slots]
        for row in np.flatnonzero(self._pub_refs[slots] != events.publication).tolist():
            ref = int(events.publication[row])
            publication = self.hub.engine.publication(ref)
            if publication is not None:
                slot = ref & SLOT_MASK
                keys[row] = entity_key("publication", publication.id)
                self._pub_refs[slot], self._pub_keys[slot] = ref, keys[row]
        return np.asarray(keys, np.uint64)

    def _descriptions(self, refs: list[int]) -> dict[int, Publication]:
        found = {}
        for ref in refs:
            publication = self.hub.engine.publication(ref)
            if publication is not None:
                found[entity_key("publication", publication.id)] = publication
        return found

    def forget(self) -> None:
        """Remove what the engine has removed."""
        engine = self.hub.engine
        self._subscriptions = {
            ref: key
            for ref, key in self._subscriptions.items()
            if engine.subscription(ref) is not None
        }
        subscriptions = self._subscriptions
        self._refs = {
            key: ref
            for key, ref in self._refs.items()
            if ref in subscriptions or engine.publication(ref) is not None
        }
