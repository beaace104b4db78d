"""One lane: an engine, and publications that come from other lanes and go on to others.

A publication is in one lane at a time. When it goes on, the lane it leaves moves it a last time,
so that true exits are told, and passes it on together with those it is still inside of; the next
lane goes on with these pairs as if nothing had happened. What the roster says to the next lane
before the publication has arrived there waits for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mercury.matcher.shared.sighting_frames import SightingFrames
from mercury.matcher.shared.stage import State, pack_pieces, pack_state, unpack_pieces
from mercury.matching import Engine, MatchingRules
from mercury.matching import layout as at
from mercury.matching.handover import adopt, partners
from mercury.model.errors import MatchingError
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import publication_from_pb, subscription_from_pb
from mercury.wire.match_frames import Rows, from_e7, to_e7
from mercury.wire.worker_frames import (
    DECLARING,
    NO_DWELL,
    PLACED,
    SIGHTINGS,
    STEPS,
    SUBSCRIPTION,
    Step,
    Steps,
)

_SLOT = (1 << 32) - 1
# Plain numbers: to ask an enum for its member takes longer than the step.
_MOVE, _ENTER, _CHANGE, _LEAVE, _WITHDRAW, _ARRIVE = map(int, Step)
_DECLARING = frozenset(map(int, DECLARING))
_ENTERS, _INSIDE, _EXITS = int(EventType.ENTER), int(EventType.INSIDE), int(EventType.EXIT)
_REASONS = {int(reason): reason for reason in EventReason}
# A subscription that a pair was passed on with, and that is not here: it is on its way, or gone.
EXPECTED_US = 30_000_000
REMEMBERED_US = 60_000_000  # who has left, and what waits for a publication that does not arrive


class Incoming(NamedTuple):
    """Steps that came with one record."""

    steps: Steps
    offset: int
    time_us: int


class Seed(NamedTuple):
    """A subscription that a publication was inside of where it comes from."""

    subscription: int
    time_us: int  # of what was last heard of it there


class Arrival(NamedTuple):
    """A publication on its way to another lane."""

    lane: int
    row: Rows  # one
    declaration: bytes
    seeds: list[Seed]


class _Waiting(NamedTuple):
    """A step that is not yet possible."""

    row: Rows  # one
    declaration: bytes
    seeds: list[Seed]
    since_us: int


class _Expected(NamedTuple):
    """A pair whose subscription is on its way to us, or gone."""

    since_us: int
    time_us: int


class _Gone(NamedTuple):
    """A subscription that was here."""

    since_us: int
    time_us: int
    for_good: bool


class Lane:
    """The entities of some places, and the pairs they form."""

    def __init__(self, rules: MatchingRules, engine: Engine | None = None) -> None:
        self.engine = engine or Engine(rules)
        self.dropped: Counter[str] = Counter()
        self.arrivals: list[Arrival] = []  # elsewhere, for who passes them on
        self._time_us = 0
        self._refs: dict[int, int] = {}
        # By slot of the engine: key, which stay of a publication, dwell of a subscription.
        self._keys = np.zeros(64, np.uint64)
        self._stays = np.zeros(64, np.int64)
        self._dwells = np.full(64, NO_DWELL, np.uint32)
        self._declared: dict[int, bytes] = {}  # publications
        self._described: dict[int, bytes] = {}  # publications, as they are told
        self._waiting: dict[int, deque[_Waiting]] = {}  # by publication
        self._expected: dict[int, dict[int, _Expected]] = {}  # publication -> subscription
        self._gone: dict[int, _Gone] = {}  # subscriptions

    def take(self, incoming: Sequence[Incoming], out: SightingFrames) -> None:
        """Let entities do their steps, in order."""
        self._time_us = max(self._time_us, *(one.time_us for one in incoming))
        rows, declarations, seeds = Steps.joined([one.steps for one in incoming])
        counts = [len(one.steps.rows) for one in incoming]
        origins = np.repeat([one.offset for one in incoming], counts)
        sown: dict[int, list[Seed]] = {}
        for row, _, subscription, last_us in seeds.tolist():
            sown.setdefault(row, []).append(Seed(subscription, last_us))
        blobs = iter(declarations)
        done = 0
        for number in np.flatnonzero(rows["step"] != _MOVE).tolist():
            self._move(rows[done:number], origins[done:number], out)
            row = rows[number : number + 1]
            blob = next(blobs) if row["step"][0] in _DECLARING else b""
            step = _Waiting(row, blob, sown.get(number, []), self._time_us)
            self._step(step, int(origins[number]), out)
            done = number + 1
        self._move(rows[done:], origins[done:], out)

    def pass_time(self, time_us: int, origin: int, out: SightingFrames) -> None:
        """Forget what nothing will come of any more."""
        self._time_us = max(self._time_us, time_us)
        self.engine.tick(0)  # rosters say when an entity's time is over
        old_us = self._time_us - REMEMBERED_US
        self._gone = {key: one for key, one in self._gone.items() if one.since_us > old_us}
        for publication, expected in list(self._expected.items()):
            late = [
                key for key, one in expected.items() if one.since_us <= self._time_us - EXPECTED_US
            ]
            for key in late:
                self._exit(publication, key, self._time_us, EventReason.MOVED, origin, out)
                self._expect_no_more(publication, key)
        for key, waiting in list(self._waiting.items()):
            if waiting[0].since_us <= old_us:
                self.dropped["lost"] += len(self._waiting.pop(key))

    # Steps

    def _move(self, rows: Rows, origins: NDArray[np.int64], out: SightingFrames) -> None:
        if not len(rows):
            return
        find = self._refs.get
        refs = np.array([find(key, -1) for key in rows["key"].tolist()], np.int64)
        slots = np.where(refs >= 0, refs & _SLOT, 0)
        publishes = (rows["flags"] & SUBSCRIPTION) == 0
        here = (refs >= 0) & (~publishes | (self._stays[slots] == rows["stay"]))
        if not here.all():
            for number in np.flatnonzero(~here).tolist():
                row = rows[number : number + 1]
                if publishes[number]:
                    step = _Waiting(row, b"", [], self._time_us)
                    self._step(step, int(origins[number]), out)
                else:
                    self.dropped["unknown"] += 1
            rows, refs, origins = rows[here], refs[here], origins[here]
        self._move_refs(rows, refs)
        self._collect(origins, out)

    def _move_refs(self, rows: Rows, refs: NDArray[np.int64]) -> None:
        self.engine.move(
            refs, from_e7(rows["lat_e7"]), from_e7(rows["lon_e7"]), rows["time_us"],
            rows["accuracy_m"].astype(np.float64),
        )  # fmt: skip

    def _step(self, step: _Waiting, origin: int, out: SightingFrames) -> None:
        """Do a step, or let it wait until it is possible."""
        key = int(step.row["key"][0])
        if step.row["flags"][0] & SUBSCRIPTION:
            self._subscription_step(key, step, origin, out)
            return
        if step.row["step"][0] != _ARRIVE and (
            key in self._waiting or not self._possible(key, step)
        ):
            here = self._stay_of(key)
            if here is not None and step.row["stay"][0] < here:
                self.dropped["stale"] += 1
            else:
                self._waiting.setdefault(key, deque()).append(step)
            return
        self._publication_step(key, step, origin, out)
        waiting = self._waiting.get(key)
        while waiting and self._possible(key, waiting[0]):
            self._publication_step(key, waiting.popleft(), origin, out)
        if waiting is not None and not waiting:
            del self._waiting[key]

    def _possible(self, key: int, step: _Waiting) -> bool:
        here = self._stay_of(key)
        if step.row["step"][0] == _ENTER:
            return here is None
        return bool(here == step.row["stay"][0])

    def _stay_of(self, key: int) -> int | None:
        ref = self._refs.get(key)
        return None if ref is None else int(self._stays[ref & _SLOT])

    def _publication_step(self, key: int, step: _Waiting, origin: int, out: SightingFrames) -> None:
        row, time_us = step.row, int(step.row["time_us"][0])
        reason = _REASONS[int(row["reason"][0])]
        kind = int(row["step"][0])
        if kind in (_ENTER, _ARRIVE):
            self._forget(key, time_us, silently=True)
            self._publish(key, step, origin, out)
            self._collect(origin, out, reason, arriving=kind == _ARRIVE)
            return
        ref = self._refs[key]
        if kind == _CHANGE:
            self._declare(key, step.declaration, time_us)
            self._collect(origin, out)
            others = self._keys[partners(self.engine, ref) & _SLOT]
            origins = np.full(len(others), origin)
            out.describe(others, [self._described[key]] * len(others), origins)
        elif kind == _WITHDRAW:
            for subscription in self._expected.pop(key, {}):
                self._exit(key, subscription, time_us, reason, origin, out)
            self.engine.withdraw(ref, time_us)
            self._collect(origin, out, reason)
            self._forget(key, time_us, silently=True)
        else:
            self._move_refs(row, np.array([ref]))
            self._collect(origin, out)
            if kind == _LEAVE:
                slots = partners(self.engine, ref) & _SLOT
                last_us = self.engine.store.clocks[slots * at.CLOCKS + at.TIME]
                seeds = list(map(Seed, self._keys[slots].tolist(), last_us.tolist()))
                seeds += [
                    Seed(other, one.time_us) for other, one in self._expected.pop(key, {}).items()
                ]
                bus_route = row.copy()
                bus_route["step"], bus_route["stay"], bus_route["next_stay"] = (
                    _ARRIVE, row["next_stay"], 0,
                )  # fmt: skip
                bus_route["origin"] = origin
                lane = int(row["to_lane"][0])
                self.arrivals.append(Arrival(lane, bus_route, self._declared[key], seeds))
                self._forget(key, time_us, silently=True)

    def _publish(self, key: int, step: _Waiting, origin: int, out: SightingFrames) -> None:
        row = step.row
        ref = self._declare(key, step.declaration, int(row["time_us"][0]))
        if ref is None:
            return
        self._stays[ref & _SLOT] = row["stay"][0]
        for subscription, last_us in step.seeds:
            other = self._refs.get(subscription)
            if other is not None and adopt(self.engine, ref, other, int(row["time_us"][0])):
                continue
            gone = self._gone.get(subscription)
            if gone is not None and (gone.for_good or last_us < gone.time_us):
                time_us = int(row["time_us"][0])
                self._exit(key, subscription, time_us, EventReason.MOVED, origin, out, row)
            else:
                one = _Expected(self._time_us, last_us)
                self._expected.setdefault(key, {})[subscription] = one
        self._move_refs(row, np.array([ref]))

    def _subscription_step(
        self, key: int, step: _Waiting, origin: int, out: SightingFrames
    ) -> None:
        row, time_us = step.row, int(step.row["time_us"][0])
        reason = _REASONS[int(row["reason"][0])]
        kind = int(row["step"][0])
        ref = self._refs.get(key)
        if kind == _ENTER:
            ref = self._declare(key, step.declaration, time_us)
            if ref is None:
                return
            self._gone.pop(key, None)
            for publication in [one for one, who in self._expected.items() if key in who]:
                adopt(self.engine, self._refs[publication], ref, time_us)
                self._expect_no_more(publication, key)
            if row["flags"][0] & PLACED:
                self._move_refs(row, np.array([ref]))
            self._collect(origin, out, reason)
        elif ref is None:
            self.dropped["unknown"] += 1
        elif kind == _CHANGE:
            self._declare(key, step.declaration, time_us)
            self._collect(origin, out)
        else:
            if kind == _LEAVE:
                self._move_refs(row, np.array([ref]))
                self._collect(origin, out)
            # Out of this lane's reach nothing is left of its pairs; if it is, they are over.
            self.engine.withdraw(ref, time_us)
            self._collect(origin, out, reason)
            self._forget(key, time_us, silently=True)
            self._gone[key] = _Gone(self._time_us, time_us, kind == _WITHDRAW)

    # Entities

    def _declare(self, key: int, blob: bytes, time_us: int) -> int | None:
        """Put an entity into the engine, or change it there."""
        message = pb.Declaration.FromString(blob)
        what: Publication | NearSubscription
        try:
            if message.HasField("publication"):
                what = publication_from_pb(message.publication)
                ref = self.engine.publish(what, time_us)
            else:
                what = subscription_from_pb(message.subscription)
                ref = self.engine.subscribe(what, time_us)
        except MatchingError as error:
            self.dropped[error.reason] += 1
            return None
        slot = ref & _SLOT
        while slot >= len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
            self._stays = np.concatenate([self._stays, np.zeros_like(self._stays)])
            self._dwells = np.concatenate([self._dwells, np.full_like(self._dwells, NO_DWELL)])
        self._refs[key] = ref
        self._keys[slot] = key
        self._dwells[slot] = NO_DWELL
        if isinstance(what, Publication):
            self._declared[key] = blob
            one = pb.Description(key=key, publication=message.publication)
            # Such messages one after the other are one message.
            self._described[key] = pb.Descriptions(description=[one]).SerializeToString()
        elif what.dwell_s is not None:
            self._dwells[slot] = min(round(what.dwell_s * 1000), NO_DWELL - 1)
        return ref

    def _forget(self, key: int, time_us: int, *, silently: bool) -> None:
        ref = self._refs.pop(key, None)
        if ref is None:
            return
        self.engine.withdraw(ref, time_us, silently=silently)
        self._declared.pop(key, None)
        self._described.pop(key, None)
        for subscription in list(self._expected.get(key, {})):
            self._expect_no_more(key, subscription)

    def _expect_no_more(self, publication: int, subscription: int) -> None:
        expected = self._expected[publication]
        del expected[subscription]
        if not expected:
            del self._expected[publication]

    # What was seen

    def _exit(
        self, publication: int, subscription: int, time_us: int, reason: EventReason, origin: int,
        out: SightingFrames, row: Rows | None = None,
    ) -> None:  # fmt: skip
        """Part a pair that the engine does not have."""
        gone = np.zeros(1, SIGHTINGS)
        gone["origin"], gone["time_us"], gone["distance_m"] = origin, time_us, np.nan
        gone["subscription"], gone["publication"] = subscription, publication
        gone["stay"] = self._stay_of(publication)
        gone["event_type"], gone["reason"], gone["dwell_ms"] = _EXITS, reason, NO_DWELL
        if row is not None:
            gone["lat_e7"], gone["lon_e7"] = row["lat_e7"], row["lon_e7"]
        out.add(gone)

    def _collect(
        self,
        origins: int | NDArray[np.int64],
        out: SightingFrames,
        reason: EventReason | None = None,
        *,
        arriving: bool = False,
    ) -> None:
        """Take from the engine what happened, before slots are given to others.

        Where updates follow from different offsets, they must be the last thing it was told.
        """
        events = self.engine.take()
        if arriving:  # where it came from has told where it is
            events = events.take(events.event_type != _INSIDE)
        if not len(events):
            return
        rows = np.zeros(len(events), SIGHTINGS)
        publications, subscriptions = events.publication & _SLOT, events.subscription & _SLOT
        rows["origin"] = origins if isinstance(origins, int) else origins[events.update]
        rows["subscription"], rows["publication"] = (
            self._keys[subscriptions], self._keys[publications],
        )  # fmt: skip
        rows["stay"], rows["dwell_ms"] = self._stays[publications], self._dwells[subscriptions]
        rows["time_us"], rows["distance_m"] = events.time_us, events.distance_m
        rows["lat_e7"], rows["lon_e7"] = to_e7(events.lat), to_e7(events.lon)
        rows["event_type"], rows["reason"] = events.event_type, events.reason
        if reason is not None:
            rows["reason"] = reason
        out.add(rows)
        entered = rows[rows["event_type"] == _ENTERS]
        if len(entered):
            what = [self._described[key] for key in entered["publication"].tolist()]
            out.describe(entered["subscription"], what, entered["origin"])

    # State

    def snapshot(self) -> bytes:
        refs = np.array(list(self._refs.values()), np.int64)
        keys = np.array(list(self._refs), np.uint64)
        waiting = [step for steps in self._waiting.values() for step in steps]
        facts = {
            "time_us": self._time_us,
            "expected": [
                (publication, subscription, *one)
                for publication, who in self._expected.items()
                for subscription, one in who.items()
            ],
            "gone": [(key, *one) for key, one in self._gone.items()],
            "seeds": [(step.seeds, step.since_us) for step in waiting],
            "declared": list(self._declared),
        }
        rows = [step.row for step in waiting]
        return pack_state(
            facts,
            engine=self.engine.snapshot(),
            refs=refs,
            keys=keys,
            stays=self._stays[refs & _SLOT],
            dwells=self._dwells[refs & _SLOT],
            declared=pack_pieces(list(self._declared.values())),
            waiting=np.concatenate(rows) if rows else np.zeros(0, STEPS),
            waiting_declared=pack_pieces([step.declaration for step in waiting]),
        )

    @classmethod
    def restore(cls, data: bytes, rules: MatchingRules) -> Self:
        """A lane as it was."""
        state = State(data)
        facts = state.facts
        lane = cls(rules, Engine.restore(state.blob("engine"), rules))
        refs = np.frombuffer(state.blob("refs"), np.int64)
        keys = np.frombuffer(state.blob("keys"), np.uint64)
        size = max(64, 2 * int((refs & _SLOT).max(initial=0)) + 2)
        lane._keys, lane._stays = np.zeros(size, np.uint64), np.zeros(size, np.int64)
        lane._dwells = np.full(size, NO_DWELL, np.uint32)
        lane._keys[refs & _SLOT] = keys
        lane._stays[refs & _SLOT] = np.frombuffer(state.blob("stays"), np.int64)
        lane._dwells[refs & _SLOT] = np.frombuffer(state.blob("dwells"), np.uint32)
        lane._refs = dict(zip(keys.tolist(), refs.tolist(), strict=True))
        lane._time_us = state.number("time_us")
        blobs = unpack_pieces(state.blob("declared"))
        for key, blob in zip(facts["declared"], blobs, strict=True):
            message = pb.Declaration.FromString(blob)
            one = pb.Description(key=key, publication=message.publication)
            lane._declared[key] = blob
            lane._described[key] = pb.Descriptions(description=[one]).SerializeToString()
        for publication, subscription, *one in facts["expected"]:
            lane._expected.setdefault(publication, {})[subscription] = _Expected(*one)
        lane._gone = {key: _Gone(*one) for key, *one in facts["gone"]}
        rows = np.frombuffer(state.blob("waiting"), STEPS)
        declared = unpack_pieces(state.blob("waiting_declared"))
        for number, (seeds, since) in enumerate(facts["seeds"]):
            row = rows[number : number + 1]
            step = _Waiting(row, declared[number], [Seed(*one) for one in seeds], since)
            lane._waiting.setdefault(int(row["key"][0]), deque()).append(step)
        return lane
