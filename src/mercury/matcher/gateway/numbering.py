"""Numbers in binary frames: clients number their own entities, the gateway the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import grown
from mercury.matching.layout import SLOT_MASK
from mercury.wire.gateway_frames import NO_HANDLE

NO_REFERENCE = -1
NEVER = -1


class HandleTable:
    """The handles of one connection: which reference each stands for."""

    def __init__(self) -> None:
        # The last element is never a handle: whatever is beyond the table is read from there.
        self._refs = np.full(64, NO_REFERENCE, np.int64)

    def __getitem__(self, handle: int) -> int:
        return int(self._refs[handle]) if handle < len(self._refs) else NO_REFERENCE

    def __setitem__(self, handle: int, ref: int) -> None:
        self._refs = grown(self._refs, handle + 1, NO_REFERENCE)
        self._refs[handle] = ref

    def look_up(self, handles: NDArray[np.uint32]) -> NDArray[np.int64]:
        """References of many, NO_REFERENCE for those that stand for nothing."""
        return np.take(self._refs, handles, mode="clip")


class SubscriptionHandles:
    """Under which handle each subscription is notified, by its slot, over all connections."""

    def __init__(self) -> None:
        self._handles = np.full(1024, NO_HANDLE, np.uint32)

    def put(self, ref: int, handle: int | None) -> None:
        """A subscription got a handle, or has none."""
        slot = ref & SLOT_MASK
        self._handles = grown(self._handles, slot, NO_HANDLE)
        self._handles[slot] = NO_HANDLE if handle is None else handle

    def look_up(self, refs: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Handles of many."""
        return np.take(self._handles, refs & SLOT_MASK, mode="clip")


class PublicationNumbers:
    """A number of 32 bits for each publication that was ever named; never given twice."""

    def __init__(self) -> None:
        self._refs = np.full(1024, NO_REFERENCE, np.int64)  # by slot
        self._numbers = np.zeros(1024, np.uint32)
        self._next = 1

    def look_up(self, refs: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Numbers of many; who has none gets one."""
        slots = refs & SLOT_MASK
        highest = int(slots.max(initial=0))
        self._refs = grown(self._refs, highest, NO_REFERENCE)
        self._numbers = grown(self._numbers, highest)
        numbers: NDArray[np.uint32] = self._numbers[slots]
        new = self._refs[slots] != refs
        if new.any():
            fresh, where = np.unique(refs[new], return_inverse=True)
            given = (np.arange(self._next, self._next + len(fresh)) & 0xFFFF_FFFF).astype(np.uint32)
            self._next += len(fresh)
            numbers[new] = given[where]
            self._refs[fresh & SLOT_MASK] = fresh
            self._numbers[fresh & SLOT_MASK] = given
        return numbers


class Introductions:
    """What a client knows of publications: the revision of each, by slot."""

    def __init__(self) -> None:
        self._revisions = np.full(64, NEVER, np.int64)

    def strangers(self, refs: NDArray[np.int64], revisions: NDArray[np.int64]) -> NDArray[np.intp]:
        """Rows of those it does not know as they are now, one row each; from now on it does."""
        slots = refs & SLOT_MASK
        highest = int(slots.max(initial=0))
        self._revisions = grown(self._revisions, highest, NEVER)
        new = np.flatnonzero(self._revisions[slots] != revisions)
        self._revisions[slots[new]] = revisions[new]
        _, first = np.unique(refs[new], return_index=True)
        return new[first]
