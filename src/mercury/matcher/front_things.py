"""What a front knows of: its own declarations and the publications that they met, in columns."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from mercury.matcher.backend import Participant
from mercury.matching.layout import SLOT_MASK
from mercury.model.matching import NearSubscription, Publication, Side, entity_key

NONE = -1
NEVER_US = 1 << 62
_LIFE = 32  # bits of a reference below its life
_IDLE = 65_536  # publications that nobody is near any more, in case that they come again

Slots = NDArray[np.int64]


# A publication inside of a subscription, as it was last told of: its slot, lat_e7, lon_e7 and
# distance_m. A plain tuple: one is made for each event.
Stay = tuple[int, int, int, float]


class Things:
    """By slot: what a thing is, whose it is, where it was last and until when it lives."""

    def __init__(self) -> None:
        self.ref: Slots = np.full(1024, NONE, np.int64)
        self._life: Slots = np.zeros(1024, np.int64)  # how often the slot was given away
        self.key: NDArray[np.uint64] = np.zeros(1024, np.uint64)
        self.own: NDArray[np.bool_] = np.zeros(1024, np.bool_)  # declared here
        self.time_us: Slots = np.zeros(1024, np.int64)  # of the last that was said of it
        self.heard_us: Slots = np.zeros(1024, np.int64)  # the same by our clock
        self.ttl_us: Slots = np.zeros(1024, np.int64)
        self.renew_us: Slots = np.full(1024, NEVER_US, np.int64)
        self.leased: NDArray[np.bool_] = np.zeros(1024, np.bool_)
        self.placed: NDArray[np.bool_] = np.zeros(1024, np.bool_)
        self.touched: NDArray[np.bool_] = np.zeros(1024, np.bool_)  # since the last turn
        self.place: NDArray[np.float64] = np.zeros((1024, 3))  # latitude, longitude, accuracy_m
        self.revision: Slots = np.zeros(1024, np.int64)  # of a publication
        self.declared: dict[int, Publication | NearSubscription] = {}  # here
        self.known: dict[int, Publication] = {}  # as matchers described it
        self.participant: dict[int, Participant] = {}
        self.of: dict[Participant, set[int]] = {}
        self.inside: dict[int, dict[int, Stay]] = {}  # of a subscription, by key
        self._near: dict[int, int] = {}  # of a publication: how many subscriptions it is inside of
        self._slots: dict[int, int] = {}  # by key; those of both sides are different
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._free: list[int] = []
        self._used = 0
        self._revision = 0

    def find(self, side: Side, entity_id: str) -> int | None:
        """The slot of something that we know of."""
        return self._slots.get(entity_key(side, entity_id))

    def slot_of_key(self, key: int) -> int | None:
        """The same, by its key."""
        return self._slots.get(key)

    def slots_of(self, keys: NDArray[np.uint64]) -> Slots:
        """Slots of many; NONE for those that we know nothing of."""
        find = self._slots.get
        return np.array([find(key, NONE) for key in keys.tolist()], np.int64)

    def slot_of(self, ref: int) -> int | None:
        """The slot of a reference that still holds."""
        slot = ref & SLOT_MASK
        return slot if 0 <= slot < self._used and self.ref[slot] == ref else None

    def expires_us(self, slots: Slots) -> Slots:
        """Until when things live that are not heard of again."""
        return self.time_us[slots] + self.ttl_us[slots]

    def own_slots(self) -> Slots:
        """All that was declared here."""
        return np.flatnonzero(self.own[: self._used])

    def pairs(self) -> int:
        """How many pairs are together."""
        return sum(self._near.values())

    def take(self, side: Side, key: int) -> int:
        """The slot of a thing, a new one if need be."""
        slot = self._slots.get(key)
        if slot is not None:
            self._idle.pop(slot, None)
            return slot
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot >= len(self.ref):
                self._grow()
        self._life[slot] += 1
        self.ref[slot] = (self._life[slot] << _LIFE) | slot
        self.key[slot] = key
        self._slots[key] = slot
        if side == "subscription":
            self.inside[slot] = {}
        return slot

    def describe(self, slot: int, publication: Publication) -> None:
        """What a publication is; another edition if it was another before."""
        before = self.known.get(slot)
        if before != publication:
            self._revision += 1
            self.revision[slot] = self._revision
            self.known[slot] = publication

    def give(self, slot: int, participant: Participant | None) -> None:
        """Say whose a thing is that is declared here."""
        before = self.participant.pop(slot, None)
        if before is not None:
            self._take_from(before, slot)
        if participant is not None:
            self.participant[slot] = participant
            self.of.setdefault(participant, set()).add(slot)

    def disown(self, slot: int) -> None:
        """It is not declared here any more; a publication may still be near somebody."""
        self.give(slot, None)
        self.declared.pop(slot, None)
        for column in (self.own, self.leased, self.placed, self.touched):
            column[slot] = False
        self.renew_us[slot] = NEVER_US
        self.time_us[slot] = 0
        if slot in self.inside:
            for publication, *_ in self.inside.pop(slot).values():
                self._part(publication)
            self._remove(slot)
        else:
            self.rest(slot)

    def meet(self, publication: int) -> None:
        """A publication is inside of one subscription more."""
        self._near[publication] = self._near.get(publication, 0) + 1
        self._idle.pop(publication, None)

    def part(self, subscription: int, key: int) -> None:
        """A publication is inside no more."""
        self._part(self.inside[subscription].pop(key)[0])

    def validate(self) -> None:
        """Check the invariants; for tests."""
        assert sorted(self.declared) == self.own_slots().tolist()
        near: dict[int, int] = {}
        for met in self.inside.values():
            for key, (publication, *_) in met.items():
                assert self.key[publication] == key
                near[publication] = near.get(publication, 0) + 1
        assert near == self._near
        assert not set(self._idle) & (set(near) | set(self.declared))
        assert {slot for some in self.of.values() for slot in some} == set(self.participant)
        assert len(self._slots) + len(self._free) == self._used

    def _part(self, publication: int) -> None:
        self._near[publication] -= 1
        if not self._near[publication]:
            del self._near[publication]
            self.rest(publication)

    def rest(self, slot: int) -> None:
        """Nobody needs a publication; the longest unneeded is let go."""
        if self.own[slot] or slot in self._near:
            return
        self._idle[slot] = None
        if len(self._idle) > _IDLE:
            self._remove(self._idle.popitem(last=False)[0])

    def _remove(self, slot: int) -> None:
        del self._slots[int(self.key[slot])]
        self.known.pop(slot, None)
        self.ref[slot] = NONE
        self._free.append(slot)

    def _take_from(self, participant: Participant, slot: int) -> None:
        theirs = self.of[participant]
        theirs.discard(slot)
        if not theirs:
            del self.of[participant]

    def _grow(self) -> None:
        for name, column in list(vars(self).items()):
            if isinstance(column, np.ndarray):
                fill = {"ref": NONE, "renew_us": NEVER_US}.get(name, 0)
                more = np.full_like(column, fill)
                setattr(self, name, np.concatenate([column, more]))
