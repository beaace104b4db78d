"""Entity numbers in binary frames: clients number their own, the gateway all others."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.geo.arrays import grown
from mercury.matching.layout import SLOT_MASK

NO_REFERENCE = -1
_NEVER = -1

Item = TypeVar("Item", bound=np.generic)


class LookupTable(Generic[Item]):
    """Numbers by slot or by handle; `nothing` where none was put."""

    def __init__(self, nothing: int, kind: type[Item]) -> None:
        self._nothing = nothing
        self._numbers: NDArray[Item] = np.full(64, nothing, kind)

    def put(self, rows: int | NDArray[Any], numbers: ArrayLike) -> None:
        """Put one, or many."""
        # The last element stays nothing: whatever is beyond the table is read from there.
        highest = int(np.max(rows, initial=0))
        self._numbers = grown(self._numbers, highest + 1, self._nothing)
        self._numbers[rows] = numbers

    def look_up(self, rows: int | NDArray[Any]) -> NDArray[Item]:
        """The number of one, or of many."""
        return np.asarray(np.take(self._numbers, rows, mode="clip"))


class PublicationNumbers:
    """A 32-bit number for each publication that was described to a client; never reused."""

    def __init__(self) -> None:
        self._refs = LookupTable(NO_REFERENCE, np.int64)  # by slot
        self._numbers = LookupTable(0, np.uint32)
        self._next = 1

    def look_up(self, refs: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The numbers of many, assigned where there is none."""
        slots = refs & SLOT_MASK
        numbers = self._numbers.look_up(slots)
        new = self._refs.look_up(slots) != refs
        if new.any():
            fresh, where = np.unique(refs[new], return_inverse=True)
            given = (np.arange(self._next, self._next + len(fresh)) & 0xFFFF_FFFF).astype(np.uint32)
            self._next += len(fresh)
            numbers[new] = given[where]
            self._refs.put(fresh & SLOT_MASK, fresh)
            self._numbers.put(fresh & SLOT_MASK, given)
        return numbers


class Introductions:
    """The revision of each publication that was described to a client, by slot."""

    def __init__(self) -> None:
        self._revisions = LookupTable(_NEVER, np.int64)

    def unknown(self, refs: NDArray[np.int64], revisions: NDArray[np.int64]) -> NDArray[np.intp]:
        """Rows of publications whose revision was not described yet, once each; marks them."""
        slots = refs & SLOT_MASK
        new = np.flatnonzero(self._revisions.look_up(slots) != revisions)
        self._revisions.put(slots[new], revisions[new])
        _, first = np.unique(refs[new], return_index=True)
        return new[first]
