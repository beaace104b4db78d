"""From keys of 64 bits to rows, for many keys at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ABSENT = -1
_FRESH = 1024


class KeyIndex:
    """Two sorted tables: a large one, and a small one for what came since that was made.

    So a key can be added while others are looked up, at the price of sorting the small one. Who
    looks up checks whether the row still is that key's: nothing is taken out.
    """

    def __init__(self) -> None:
        self._keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._fresh: dict[int, int] = {}
        self._fresh_keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._fresh_rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._sorted = True  # whether the arrays hold all that is fresh

    def add(self, key: int, row: int) -> None:
        """A key is in a row, from now on."""
        self._fresh[key] = row
        self._sorted = False
        if len(self._fresh) >= max(_FRESH, len(self._keys) // 16):
            self._merge()

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row that each key was last in; ABSENT for those never seen."""
        if not self._sorted:
            self._fresh_keys, self._fresh_rows = _sorted(
                np.fromiter(self._fresh.keys(), np.uint64, len(self._fresh)),
                np.fromiter(self._fresh.values(), np.int64, len(self._fresh)),
            )
            self._sorted = True
        found = _look_up(self._fresh_keys, self._fresh_rows, keys)
        missing = np.flatnonzero(found == ABSENT)
        if len(missing) and len(self._keys):
            found[missing] = _look_up(self._keys, self._rows, keys[missing])
        return found

    def _merge(self) -> None:
        fresh_keys = np.fromiter(self._fresh.keys(), np.uint64, len(self._fresh))
        fresh_rows = np.fromiter(self._fresh.values(), np.int64, len(self._fresh))
        # A row has one key: what stood there before is gone. So the table has no more rows than
        # there ever were at once.
        kept = ~np.isin(self._rows, fresh_rows) & ~np.isin(self._keys, fresh_keys)
        self._keys, self._rows = _sorted(
            np.concatenate([self._keys[kept], fresh_keys]),
            np.concatenate([self._rows[kept], fresh_rows]),
        )
        self._fresh = {}
        self._sorted = False


def _sorted(
    keys: NDArray[np.uint64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    order = np.argsort(keys)
    return keys[order], rows[order]


def _look_up(
    table: NDArray[np.uint64], rows: NDArray[np.int64], keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    if not len(table):
        return np.full(len(keys), ABSENT, np.int64)
    at = np.minimum(table.searchsorted(keys), len(table) - 1)
    return np.where(table[at] == keys, rows[at], ABSENT)
