"""The first stage: owns the state of entities, and says in which lanes they are.

Everything about an entity comes to one partition of `moving`, in order. The roster keeps what it
is, where it was last, and until when it lives, and tells each lane what enters it, moves in it and
leaves it. Moves are array work; a batch may be cut anywhere without changing what is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.bus import Record
from mercury.matcher.shared.lane_frames import LaneFrames
from mercury.matcher.shared.routing import Routing, reach_of, topic_number
from mercury.matcher.shared.stage import (
    Parcel,
    StageNumber,
    State,
    pack_pieces,
    pack_state,
    unpack_pieces,
)
from mercury.matching import MatchingRules
from mercury.model import topics
from mercury.model.errors import AreaError, FilterError, MatchingError, PacketError
from mercury.model.matching import EventReason, NearSubscription, Publication
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import KeyedDeclaration as Declaration
from mercury.wire.declarations import Refusal, declaration_from_pb, declaration_to_pb, refusal
from mercury.wire.match_frames import (
    BUCKETS,
    MOVES,
    WITHDRAWALS,
    WITHDRAWN_BEFORE_US,
    FrameWriter,
    Rows,
    bucket_key,
    buckets_of,
    from_e7,
    rows_of,
    split_frame,
    to_e7,
)
from mercury.wire.origins import Origin, origin_header
from mercury.wire.worker_frames import SPLITS, Step, mark_of, offset_of, read_time

ENTITY = np.dtype(
    [
        ("key", "<u8"),
        ("topic", "<u8"),
        ("lanes", "<u8"),  # of a subscription, as bits
        ("stay", "<i8"),  # of a publication: which of its registrations this is
        ("time_us", "<i8"),
        ("expires_us", "<i8"),
        ("ttl_us", "<i8"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("accuracy_m", "<f4"),
        ("reach_m", "<f4"),
        ("kind", "u1"),
        ("placed", "?"),
        ("lane", "<i2"),  # of a publication; −1: in none
    ]
)
FREE, PUBLICATION, CIRCLE, POLYGON = range(4)

_LIMIT_LAT, _LIMIT_LON = 900_000_000, 1_800_000_000
_NEVER_US = 1 << 62
_SPLITS_EVERY_US = 5_000_000

Slots = NDArray[np.int64]


class Roster:
    """The entities of one partition of `moving`."""

    def __init__(
        self, partition: int, rules: MatchingRules, tile_m: float, split_above: int
    ) -> None:
        self.partition = partition
        self.rules = rules
        self.routing = Routing(tile_m)
        self.dropped: Counter[str] = Counter()
        self.updates = 0
        self.entities = np.zeros(1024, ENTITY)
        self._split_above = split_above
        self._slots: dict[int, int] = {}
        self._declared: dict[int, bytes] = {}  # by slot, as it goes to lanes
        self._free: list[int] = []
        self._used = 0
        self._buckets: set[bytes] = set()  # that come to this partition
        self._splits_checked_us = 0
        self._frames = LaneFrames(self.entities)
        self._others: list[Parcel] = []

    def process(self, records: Sequence[Record]) -> list[Parcel]:
        """Take in records; what lanes are told, and who is refused."""
        self._others = []
        moves: list[Rows] = []
        origins: list[NDArray[np.int64]] = []
        for record in records:
            try:
                segments = split_frame(record.value)
                for number, (letter, data) in enumerate(segments):
                    first = mark_of(record.offset, number)
                    if letter == b"M":
                        rows = rows_of(data, MOVES)
                        moves.append(rows)
                        origins.append(first + np.minimum(np.arange(len(rows)), 0xFFFF))
                    else:
                        self._move_all(moves, origins)
                        self._take_segment(letter, data, first)
                self._buckets.add(record.key)
            except PacketError as error:
                self.dropped[error.reason] += 1
        self._move_all(moves, origins)
        origin = (StageNumber.ROSTER, self.partition)
        return [*self._others, *self._frames.parcels(topics.TILES, *origin)]

    def statistics(self) -> dict[str, float]:
        kinds = self.entities["kind"][: self._used]
        return {
            "publications": int(np.count_nonzero(kinds == PUBLICATION)),
            "subscriptions": int(np.count_nonzero(kinds > PUBLICATION)),
            "updates": self.updates,
        }

    # Positions

    def _move_all(self, moves: list[Rows], origins: list[NDArray[np.int64]]) -> None:
        """Apply the moves that were collected; each entity's in order."""
        if not moves:
            return
        rows, marks = np.concatenate(moves), np.concatenate(origins)
        moves.clear()
        origins.clear()
        find = self._slots.get
        slots = np.array([find(key, -1) for key in rows["key"].tolist()], np.int64)
        good = slots >= 0
        self._drop("unknown", good)
        on_earth = (np.abs(rows["lat_e7"].astype(np.int64)) <= _LIMIT_LAT) & (
            np.abs(rows["lon_e7"].astype(np.int64)) <= _LIMIT_LON
        )
        self._drop("no-position", on_earth | ~good)
        good &= on_earth
        if not good.all():
            rows, marks, slots = rows[good], marks[good], slots[good]
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        if len(starts) == len(slots):
            self._move(slots, rows, marks)
            return
        counts = np.diff(np.append(starts, len(ordered)))
        turns = np.empty(len(slots), np.int64)  # the how-manieth of its entity a row is
        turns[order] = np.arange(len(ordered)) - np.repeat(starts, counts)
        for flush in range(int(counts.max())):
            some = turns == flush
            self._move(slots[some], rows[some], marks[some])

    def _move(self, slots: Slots, rows: Rows, marks: NDArray[np.int64]) -> None:
        """Apply one move of each of some entities."""
        known = self.entities
        timely = rows["time_us"] >= known["time_us"][slots]
        if not timely.all():
            self._drop("late", timely)
            slots, rows, marks = slots[timely], rows[timely], marks[timely]
        self.updates += len(slots)
        known["time_us"][slots] = rows["time_us"]
        known["expires_us"][slots] = rows["time_us"] + known["ttl_us"][slots]
        moving = known["kind"][slots] != POLYGON  # which stay where they are: this keeps them alive
        if not moving.all():
            slots, rows, marks = slots[moving], rows[moving], marks[moving]
        for name in ("lat_e7", "lon_e7", "accuracy_m"):
            known[name][slots] = rows[name]
        known["placed"][slots] = True
        self._settle(slots, marks, EventReason.MOVED, moved=True)

    def _settle(
        self, slots: Slots, marks: NDArray[np.int64], reason: EventReason, *, moved: bool
    ) -> None:
        """See to it that entities are in the lanes of their positions, and that these know."""
        known = self.entities
        publishes = known["kind"][slots] == PUBLICATION
        self._settle_publications(slots[publishes], marks[publishes], reason, moved=moved)
        subscriptions = ~publishes
        self._settle_subscriptions(slots[subscriptions], marks[subscriptions], reason, moved=moved)

    def _settle_publications(
        self, slots: Slots, marks: NDArray[np.int64], reason: EventReason, *, moved: bool
    ) -> None:
        if not len(slots):
            return
        known = self.entities[slots]
        lanes = self.routing.lanes_of(
            known["lat_e7"], known["lon_e7"], known["topic"], known["key"]
        )
        before = known["lane"].astype(np.int64)
        steps = np.where(before < 0, Step.ENTER, np.where(before == lanes, Step.MOVE, Step.LEAVE))
        told = np.where(before < 0, lanes, before)
        goes = steps != Step.MOVE
        stays = np.where(steps == Step.ENTER, marks, known["stay"])
        if not moved:
            told, slots, marks, steps = told[goes], slots[goes], marks[goes], steps[goes]
            stays, lanes, goes = stays[goes], lanes[goes], goes[goes]
        self._frames.add(
            *(told, slots, marks, steps, reason),
            stays=stays, next_stays=np.where(steps == Step.LEAVE, marks, 0), to_lanes=lanes,
            declared=self._declared,
        )  # fmt: skip
        self.entities["lane"][slots] = lanes
        self.entities["stay"][slots[goes]] = marks[goes]

    def _settle_subscriptions(
        self, slots: Slots, marks: NDArray[np.int64], reason: EventReason, *, moved: bool
    ) -> None:
        if not len(slots):
            return
        known = self.entities[slots]
        touched = self.routing.lanes_touched(
            from_e7(known["lat_e7"]), from_e7(known["lon_e7"]), known["reach_m"], known["topic"]
        )
        before = known["lanes"]
        told = before | touched if moved else before ^ touched
        rows, lanes = np.nonzero(
            np.unpackbits(told.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        )
        bit = np.uint64(1) << lanes.astype(np.uint64)
        was, stays = (before[rows] & bit) != 0, (touched[rows] & bit) != 0
        steps = np.where(~was, Step.ENTER, np.where(stays, Step.MOVE, Step.LEAVE))
        self._frames.add(lanes, slots[rows], marks[rows], steps, reason, declared=self._declared)
        self.entities["lanes"][slots] = touched

    # Everything else

    def _take_segment(self, letter: bytes, data: memoryview, mark: int) -> None:
        match letter:
            case b"D":
                try:
                    declared = pb.Declarations.FromString(bytes(data)).declaration
                except Exception:
                    raise PacketError("malformed") from None
                refused = []
                for number, one in enumerate(declared):
                    problem = self._declare(declaration_from_pb(one), mark + min(number, 0xFFFF))
                    if problem is not None:
                        refused.append(problem)
                self._refuse(refused, offset_of(mark))
            case b"W":
                for number, row in enumerate(rows_of(data, WITHDRAWALS)):
                    slot = self._slots.get(int(row["key"]))
                    if slot is None:
                        self.dropped["unknown"] += 1
                    elif row["time_us"] < self.entities["time_us"][slot] - WITHDRAWN_BEFORE_US:
                        self.dropped["late"] += 1
                    else:
                        at = mark + min(number, 0xFFFF)
                        self._withdraw(np.array([slot]), row["time_us"], EventReason.WITHDRAWN, at)
            case b"T":
                self._pass_time(read_time(data), mark)
            case b"N":
                self._split(rows_of(data, SPLITS), mark)

    def _declare(self, declaration: Declaration, mark: int) -> Refusal | None:
        what = declaration.what
        if isinstance(what, Refusal):
            return what
        time_us = declaration.time_us
        try:
            kind, reach_m, place = self._judged(what)
        except (MatchingError, FilterError, AreaError) as error:
            return refusal(declaration.key, error)
        slot = self._slots.get(declaration.key)
        topic = topic_number(what.topic)
        anew = slot is None
        if slot is not None:
            one = self.entities[slot]
            if one["topic"] != topic or one["kind"] != kind:
                # Another topic or kind of scope: its pairs are over, it begins anew where it is.
                self._leave_lanes(np.array([slot]), time_us, EventReason.CHANGED, mark)
                if POLYGON in (kind, int(one["kind"])):
                    self.entities["placed"][slot] = False
                anew = True
        else:
            slot = self._new_slot(declaration.key)
        message = pb.Declaration()
        declaration_to_pb(what, 0, message)
        blob = message.SerializeToString(deterministic=True)
        changed = self._declared.get(slot) != blob
        self._declared[slot] = blob
        one = self.entities[slot : slot + 1]
        one["topic"], one["kind"], one["reach_m"] = topic, kind, reach_m
        one["ttl_us"] = round((self.rules.ttl_s if what.ttl_s is None else what.ttl_s) * 1e6)
        one["time_us"] = np.maximum(one["time_us"], time_us)
        one["expires_us"] = one["time_us"] + one["ttl_us"]
        if place is not None:
            one["lat_e7"], one["lon_e7"], one["placed"] = (*to_e7(place), True)
        if not one["placed"][0] or not (anew or changed):
            return None
        slots, marks = np.array([slot]), np.array([mark])
        if not anew:
            self._tell_lanes(slots, marks, Step.CHANGE, EventReason.CHANGED)
        self._settle(slots, marks, EventReason.CHANGED, moved=False)
        return None

    def _judged(
        self, what: Publication | NearSubscription
    ) -> tuple[int, float, tuple[float, float] | None]:
        """Kind, reach and fixed place of what may be; raises for what may not."""
        if isinstance(what, Publication):
            self.rules.check(what.topic, what.radius_m, publication=True)
            return PUBLICATION, 0.0, None
        outline, reach_m = reach_of(what, self.rules)
        if outline is None:
            return CIRCLE, reach_m, None
        return POLYGON, reach_m, (outline.lat, outline.lon)

    def _new_slot(self, key: int) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot == len(self.entities):
                self.entities = np.concatenate([self.entities, np.zeros_like(self.entities)])
                self._frames.entities = self.entities
        one = self.entities[slot : slot + 1]
        one[:] = np.zeros(1, ENTITY)
        one["key"], one["lane"], one["time_us"] = key, -1, -_NEVER_US
        self._slots[key] = slot
        return slot

    def _withdraw(self, slots: Slots, time_us: ArrayLike, reason: EventReason, mark: int) -> None:
        self._leave_lanes(slots, time_us, reason, mark)
        for slot in slots.tolist():
            del self._slots[int(self.entities["key"][slot])]
            del self._declared[slot]
            self.entities["kind"][slot] = FREE
            self._free.append(slot)

    def _leave_lanes(
        self, slots: Slots, time_us: ArrayLike, reason: EventReason, mark: int
    ) -> None:
        self.entities["time_us"][slots] = np.maximum(self.entities["time_us"][slots], time_us)
        self._tell_lanes(slots, np.full(len(slots), mark), Step.WITHDRAW, reason)
        self.entities["lane"][slots] = -1
        self.entities["lanes"][slots] = 0

    def _tell_lanes(
        self, slots: Slots, marks: NDArray[np.int64], step: Step, reason: EventReason
    ) -> None:
        """Tell all lanes that entities are in."""
        known = self.entities[slots]
        lanes = known["lane"].astype(np.int64)
        inside = np.flatnonzero((known["kind"] == PUBLICATION) & (lanes >= 0))
        self._frames.add(
            *(lanes[inside], slots[inside], marks[inside], np.full(len(inside), step), reason),
            stays=known["stay"][inside], declared=self._declared,
        )  # fmt: skip
        bits = np.unpackbits(
            np.ascontiguousarray(known["lanes"]).view(np.uint8).reshape(-1, 8),
            axis=1, bitorder="little",
        )  # fmt: skip
        rows, lanes = np.nonzero(bits)
        self._frames.add(
            *(lanes, slots[rows], marks[rows], np.full(len(rows), step), reason),
            declared=self._declared,
        )

    def _pass_time(self, time_us: int, mark: int) -> None:
        """Let go of what was not heard of for too long."""
        known = self.entities[: self._used]
        late = np.flatnonzero((known["kind"] != FREE) & (known["expires_us"] <= time_us))
        if len(late):
            self._withdraw(late, known["expires_us"][late], EventReason.EXPIRED, mark)
        if time_us - self._splits_checked_us >= _SPLITS_EVERY_US:
            self._splits_checked_us = time_us
            self._look_for_crowds()

    def _look_for_crowds(self) -> None:
        """Ask all rosters to split places that seem to hold too many publications."""
        known = self.entities[: self._used]
        known = known[(known["kind"] == PUBLICATION) & known["placed"]]
        places, counts = np.unique(
            self.routing.places_of(known["lat_e7"], known["lon_e7"], known["topic"]),
            return_counts=True,
        )
        # We see a part of the entities, drawn by hash.
        whole = counts * (BUCKETS / max(len(self._buckets), 1))
        crowded = np.flatnonzero(whole > self._split_above)
        wanted = []
        for place, count in zip(places[crowded].tolist(), whole[crowded].tolist(), strict=True):
            parts = 1 << int(np.ceil(np.log2(count / self._split_above)))
            if parts > self.routing.splits.get(place, 1):
                wanted.append((place, parts, 0))
        if wanted:
            rows = np.array(wanted, SPLITS)
            frame = FrameWriter().segment(b"N", rows.tobytes()).to_bytes()
            self._others += [
                Parcel(topics.ENTITIES, bucket_key(bucket), frame) for bucket in range(BUCKETS)
            ]

    def _split(self, rows: Rows, mark: int) -> None:
        split = [self.routing.split(int(row["place"]), int(row["parts"])) for row in rows]
        if any(split):
            slots = np.flatnonzero(
                (self.entities["kind"][: self._used] != FREE)
                & self.entities["placed"][: self._used]
            )
            self._settle(slots, np.full(len(slots), mark), EventReason.MOVED, moved=False)

    def _refuse(self, refused: list[Refusal], offset: int) -> None:
        for bucket in sorted({int(buckets_of(one.key)) for one in refused}):
            some = [one for one in refused if buckets_of(one.key) == bucket]
            self.dropped["refused"] += len(some)
            headers = (origin_header(Origin(StageNumber.ROSTER, self.partition, offset)),)
            self._others.append(
                Parcel(
                    topics.MATCHES,
                    bucket_key(bucket),
                    FrameWriter().refuse(some).to_bytes(),
                    headers,
                )
            )

    def _drop(self, reason: str, good: NDArray[np.bool_]) -> None:
        bad = len(good) - int(np.count_nonzero(good))
        if bad:
            self.dropped[reason] += bad

    # State

    def snapshot(self) -> bytes:
        facts = {
            "free": self._free,
            "buckets": sorted(key.hex() for key in self._buckets),
            "splits": list(self.routing.splits.items()),
            "splits_checked_us": self._splits_checked_us,
            "updates": self.updates,
        }
        slots = sorted(self._declared)
        return pack_state(
            facts,
            entities=self.entities[: self._used],
            slots=np.array(slots, np.int64),
            declared=pack_pieces([self._declared[slot] for slot in slots]),
        )

    def restore(self, data: bytes) -> Self:
        """Go on from a snapshot; only an empty roster may."""
        state = State(data)
        entities = state.array("entities")
        self._used = len(entities)
        self.entities = np.zeros(max(1024, 2 * self._used), ENTITY)
        self.entities[: self._used] = entities
        self._frames.entities = self.entities
        slots = np.frombuffer(state.blob("slots"), np.int64).tolist()
        self._declared = dict(zip(slots, unpack_pieces(state.blob("declared")), strict=True))
        self._slots = {int(entities["key"][slot]): slot for slot in slots}
        facts = state.facts
        self._free = list(facts["free"])
        self._buckets = {bytes.fromhex(key) for key in facts["buckets"]}
        for place, parts in facts["splits"]:
            self.routing.split(place, parts)
        self._splits_checked_us = state.number("splits_checked_us")
        self.updates = state.number("updates")
        return self
