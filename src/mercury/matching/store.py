"""The arrays that the kernel works on, and how they grow."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.matching import cell_lists, kernel
from mercury.matching import layout as at
from mercury.matching.cells import COLUMNS, USUAL_LEVEL
from mercury.matching.events import Events

_LINE_BYTES = 64
_ARRAYS = attrgetter(*at.Arrays._fields)
_FEWEST = 64  # entities that there is always room for


class Store:
    """Entities, cells, pairs and verdicts as flat arrays."""

    def __init__(self) -> None:
        self.counters = np.zeros(at.COUNTERS, np.int64)
        self.counters[[at.FREE_CHUNK, at.FREE_PAIR]] = -1
        self.counters[at.NEXT_DWELL_US] = at.NEVER_US
        self.numbers = _lines(0, np.float64)
        self.clocks = _lines(0, np.int64)
        self.states = _lines(0, np.int32)
        self.table = _lines(1024, np.int64)
        self.records = _lines(0, np.float64)
        self.pairs = _lines(0, np.int32)
        self.since = np.zeros(0, np.int64)
        self.edges = np.zeros(0, np.float64)
        self.verdicts = _lines(1024, np.int64)
        self.levels = np.zeros(0, np.int64)  # for each topic: of publications, of subscriptions
        self.widest = np.zeros(0, np.float64)
        self.inhabited = np.zeros(0, np.int64)  # for each topic and side: which levels, as bits
        self.looks = np.zeros(0, np.int64)
        self.out_codes = np.zeros(2 * 4096, np.uint8)
        self.out_integers = np.zeros(4 * 4096, np.int64)
        self.out_numbers = np.zeros(3 * 4096, np.float64)
        self.columns = COLUMNS.ravel()
        self.prefetched = _lines(32 * 16, np.int64)
        self._verdicts_known = 0
        self.grow_entities(_FEWEST)
        self.grow_topics(8)
        self._view()

    # Room

    @property
    def capacity(self) -> int:
        """How many entities there is room for."""
        return len(self.states) // at.STATES

    def grow_entities(self, capacity: int) -> None:
        before = self.capacity
        self.numbers = _longer(self.numbers, capacity * at.NUMBERS)
        self.clocks = _longer(self.clocks, capacity * at.CLOCKS)
        self.states = _longer(self.states, capacity * at.STATES)
        self.states.reshape(-1, at.STATES)[before:, at.GENERATION] = 1

    def grow_topics(self, topics: int) -> None:
        before = len(self.levels)
        self.levels = _longer(self.levels, 2 * topics)
        self.levels[before:] = USUAL_LEVEL
        self.widest = _longer(self.widest, 64 * topics)
        self.inhabited = _longer(self.inhabited, 2 * topics)
        self.looks = _longer(self.looks, at.LOOKS * topics)

    def gather_edges(self, entities: int, more: int) -> int:
        """Move the edges of all polygons together and make room for more; how many there are."""
        states = self.states.reshape(-1, at.STATES)[:entities]
        gathered = np.zeros_like(self.edges)
        count = 0
        for slot in np.flatnonzero(states[:, at.KIND] == at.POLYGON).tolist():
            first, edges = int(states[slot, at.EDGE]), int(states[slot, at.EDGES])
            gathered[4 * count : 4 * (count + edges)] = self.edges[4 * first : 4 * (first + edges)]
            states[slot, at.EDGE] = count
            count += edges
        self.edges = _longer(gathered, max(len(gathered), 8 * (count + more)))
        return count

    def provide(self, wanted: int) -> None:
        """Make room for what the kernel asked for; a verdict is not room."""
        if wanted == at.MORE_EVENTS:
            self.out_codes = _longer(self.out_codes, 2 * len(self.out_codes))
            self.out_integers = _longer(self.out_integers, 2 * len(self.out_integers))
            self.out_numbers = _longer(self.out_numbers, 2 * len(self.out_numbers))
        elif wanted == at.MORE_CHUNKS:
            first = 1024 * at.CHUNK_ROWS * at.ROW_NUMBERS
            self.records = _longer(self.records, max(first, 2 * len(self.records)))
            self._view()
        elif wanted == at.MORE_PAIRS:
            pairs = max(1024, 2 * len(self.since))
            self.pairs = _longer(self.pairs, pairs * at.PAIR)
            self.since = _longer(self.since, pairs)
        elif wanted == at.MORE_TABLE:
            cells = int((self.table.reshape(-1, 2)[:, 1] >= 0).sum())
            size = len(self.table)
            while size < 8 * max(cells, 1):
                size *= 2
            table = _lines(size, np.int64)
            self.counters[at.USED] = cell_lists.rebuild_table(self.table, table)
            self.table = table

    def note_verdict(self, passes: bool) -> None:
        """Store the verdict that the kernel asked for."""
        if 4 * self._verdicts_known >= len(self.verdicts):
            # All are dropped now and then: most are of values that are no longer used.
            size = len(self.verdicts) * (2 if len(self.verdicts) < 1 << 23 else 1)
            self.verdicts = _lines(size, np.int64)
            self._verdicts_known = 0
        key = int(self.counters[at.FILTER]) << 31 | int(self.counters[at.CONTENT_ASKED])
        cell_lists.put_verdict(key, 2 if passes else 1, self.verdicts)
        self._verdicts_known += 1

    def arrays(self, entities: int, edges: int) -> dict[str, NDArray[Any]]:
        """The used part of all arrays that must be kept; verdicts can be computed again."""
        chunks, pairs = int(self.counters[at.CHUNKS]), int(self.counters[at.PAIRS])
        return {
            "counters": self.counters,
            "numbers": self.numbers[: entities * at.NUMBERS],
            "clocks": self.clocks[: entities * at.CLOCKS],
            "states": self.states[: entities * at.STATES],
            "table": self.table,
            "records": self.records[: chunks * at.CHUNK_ROWS * at.ROW_NUMBERS],
            "pairs": self.pairs[: pairs * at.PAIR],
            "since": self.since[:pairs],
            "edges": self.edges[: 4 * edges],
            "levels": self.levels,
            "widest": self.widest,
            "inhabited": self.inhabited,
            "looks": self.looks,
        }

    def replace(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the arrays."""
        for name, array in arrays.items():
            setattr(self, name, _longer(array, len(array)))
        self.counters[at.EVENTS] = 0
        if self.capacity < _FEWEST:
            self.grow_entities(_FEWEST)
        self._view()

    def _view(self) -> None:
        self.singles = self.records.view(np.float32)
        self.integers = self.records.view(np.int32)

    # Work

    def all_arrays(self) -> at.Arrays:
        """All arrays, as the kernel takes them."""
        return at.Arrays._make(_ARRAYS(self))

    def rebuild_cells(self, topic: int, used: int) -> None:
        """Put a topic's entities into cells of the sizes that hold now."""
        slot = 0
        while slot < used:
            slot = cell_lists.rebuild_cells(topic, slot, used, self.all_arrays())
            if slot < used:
                full = self.counters[at.USED] * 4 >= len(self.table)
                self.provide(at.MORE_TABLE if full else at.MORE_CHUNKS)

    def sweep(self, time_us: int) -> None:
        """Write dwell events."""
        if time_us < self.counters[at.NEXT_DWELL_US]:
            return
        pair = 0
        while pair >= 0:
            pair = kernel.sweep(pair, time_us, self.all_arrays())
            if pair >= 0:
                self.provide(at.MORE_EVENTS)

    def take_events(self) -> Events:
        """The events since the last call."""
        count = int(self.counters[at.EVENTS])
        self.counters[at.EVENTS] = 0
        event_type, reason = self.out_codes[: 2 * count].reshape(-1, 2).T.copy()
        integers = self.out_integers[: 4 * count].reshape(-1, 4).T.copy()
        distance_m, lat, lon = self.out_numbers[: 3 * count].reshape(-1, 3).T.copy()
        publication, subscription, time_us, update = integers
        return Events(
            event_type, reason, publication, subscription, time_us,
            distance_m.astype(np.float32), lat, lon, update,
        )  # fmt: skip


def _lines(length: int, kind: type[np.generic]) -> NDArray[Any]:
    """Zeros aligned to a cache line, so that a row of 64 bytes is one."""
    item = np.dtype(kind).itemsize
    raw = np.zeros(length * item + _LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % _LINE_BYTES
    return raw[start : start + length * item].view(kind)


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = _lines(length, array.dtype.type)
    longer[: len(array)] = array
    return longer
