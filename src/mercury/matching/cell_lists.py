"""Which entities are in which cell: a hash table of cells, each a list of chunks of seven."""

from __future__ import annotations

from typing import Any

from mercury.geo.distance import DEGREE_M
from mercury.matching import layout as at
from mercury.matching.cells import column_of, columns_in, key_of, row_of
from mercury.matching.compiling import compiled, inlined
from mercury.matching.layout import Arrays
from mercury.matching.references import PARTS, pull_in, size_m, skin_m

_SPREAD = -7046029254386353131  # the golden ratio in 64 bits: spreads neighbouring cells

# Several arguments to a line.
# fmt: off


@inlined
def spread(key: int, table: Any) -> int:
    """The first bucket of a key in the hash table; all of its bits count."""
    return (((key ^ (key >> 32)) * _SPREAD) >> 36) & (len(table) // 2 - 1)


@inlined
def bucket_of(key: int, table: Any) -> int:
    """The bucket of a cell in the table, or the free bucket for it."""
    mask = len(table) // 2 - 1
    bucket = spread(key, table)
    while table[2 * bucket] != key and table[2 * bucket] != 0:
        bucket = (bucket + 1) & mask
    return bucket


@inlined
def put_record(slot: int, key: int, a: Arrays) -> None:
    bucket = bucket_of(key, a.table)
    if a.table[2 * bucket] == 0:
        a.table[2 * bucket] = key
        a.table[2 * bucket + 1] = -1
        a.counters[at.USED] += 1
    head = a.table[2 * bucket + 1]
    if head < 0 or a.integers[64 * head + at.COUNT] == at.MOST_RECORDS:
        chunk = a.counters[at.FREE_CHUNK]
        if chunk >= 0:
            a.counters[at.FREE_CHUNK] = a.integers[64 * chunk + at.FOLLOWING]
        else:
            chunk = a.counters[at.CHUNKS]
            a.counters[at.CHUNKS] += 1
        a.integers[64 * chunk + at.FOLLOWING] = head
        a.integers[64 * chunk + at.COUNT] = 0
        a.table[2 * bucket + 1] = chunk
        head = chunk
    a.integers[64 * head + at.COUNT] += 1
    record = head * at.CHUNK_ROWS + a.integers[64 * head + at.COUNT]
    a.integers[8 * record + at.INTEGER_SLOT] = slot
    a.states[slot * 16 + at.RECORD] = record
    a.clocks[slot * 8 + at.KEY] = key


@inlined
def take_record(slot: int, a: Arrays) -> None:
    """Remove an entity from its cell; the last record of the cell's first chunk fills the gap."""
    record = a.states[slot * 16 + at.RECORD]
    bucket = bucket_of(a.clocks[slot * 8 + at.KEY], a.table)
    head = a.table[2 * bucket + 1]
    last = head * at.CHUNK_ROWS + a.integers[64 * head + at.COUNT]
    a.integers[64 * head + at.COUNT] -= 1
    if last != record:
        for number in range(at.ROW_NUMBERS):
            a.records[4 * record + number] = a.records[4 * last + number]
        a.states[a.integers[8 * record + at.INTEGER_SLOT] * 16 + at.RECORD] = record
    if a.integers[64 * head + at.COUNT] == 0:
        a.table[2 * bucket + 1] = a.integers[64 * head + at.FOLLOWING]
        a.integers[64 * head + at.FOLLOWING] = a.counters[at.FREE_CHUNK]
        a.counters[at.FREE_CHUNK] = head
    a.states[slot * 16 + at.RECORD] = -1


@compiled
def rebuild_table(old: Any, new: Any) -> int:
    """Copy the cells that are not empty; returns how many."""
    used = 0
    for bucket in range(len(old) // 2):
        if old[2 * bucket] != 0 and old[2 * bucket + 1] >= 0:
            found = bucket_of(old[2 * bucket], new)
            new[2 * found] = old[2 * bucket]
            new[2 * found + 1] = old[2 * bucket + 1]
            used += 1
    return used


@compiled
def put_verdict(key: int, verdict: int, verdicts: Any) -> None:
    bucket = bucket_of(key, verdicts)
    verdicts[2 * bucket] = key
    verdicts[2 * bucket + 1] = verdict


@inlined
def level_for(slot: int, a: Arrays) -> int:
    """The level of cells of an entity: publications of a topic share one."""
    topic = a.states[slot * 16 + at.TOPIC]
    if a.states[slot * 16 + at.KIND] == at.PUBLICATION:
        return a.levels[2 * topic]
    level = a.levels[2 * topic + 1]
    wanted_deg = 1.5 * a.numbers[slot * 8 + at.RADIUS] / DEGREE_M
    while level < 12 and wanted_deg * (4096 >> level) > 1.0:
        level = min(level + 2, 12)
    return level


@compiled
def remove_from_cells(slot: int, a: Arrays) -> None:
    """Remove an entity from the cells."""
    if a.states[slot * 16 + at.RECORD] < 0:
        return
    take_record(slot, a)
    side = 0 if a.states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    entry = (a.states[slot * 16 + at.TOPIC] * 2 + side) * 16 + a.states[slot * 16 + at.LEVEL]
    a.widest[2 * entry] -= 1.0
    if a.widest[2 * entry] == 0.0:
        a.widest[2 * entry + 1] = 0.0
        a.inhabited[entry >> 4] &= ~(1 << a.states[slot * 16 + at.LEVEL])


@inlined
def add_to_cells(slot: int, a: Arrays) -> None:
    """Put an entity into the cell of its reference position, which is where it is now."""
    topic = a.states[slot * 16 + at.TOPIC]
    side = 0 if a.states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    level = level_for(slot, a)
    entry = (topic * 2 + side) * 16 + level
    size = size_m(slot, a) + skin_m(slot, a)
    if a.states[slot * 16 + at.RECORD] >= 0 and a.states[slot * 16 + at.LEVEL] != level:
        remove_from_cells(slot, a)
    if a.states[slot * 16 + at.RECORD] < 0:
        a.states[slot * 16 + at.LEVEL] = level
        if a.widest[2 * entry] == 0.0:
            a.counters[at.WIDENED] += 1
        a.widest[2 * entry] += 1.0
        a.inhabited[topic * 2 + side] |= 1 << level
    if size > a.widest[2 * entry + 1]:
        a.counters[at.WIDENED] += 1  # invalidates earlier prefetches
        a.widest[2 * entry + 1] = size
    row = row_of(a.numbers[slot * 8 + at.LAT], level)
    column = column_of(a.numbers[slot * 8 + at.LON], columns_in(row, level, a.columns))
    key = key_of(side, topic, level, row, column)
    if a.states[slot * 16 + at.RECORD] >= 0 and a.clocks[slot * 8 + at.KEY] != key:
        take_record(slot, a)
    if a.states[slot * 16 + at.RECORD] < 0:
        put_record(slot, key, a)
    record = a.states[slot * 16 + at.RECORD]
    for axis in range(3):
        a.records[4 * record + axis] = a.states[slot * 16 + at.REFERENCE + axis] * (1.0 / PARTS)
    a.singles[8 * record + at.SINGLE_RADIUS] = size * 1.000001 + 0.001  # never rounded down


@compiled
def rebuild_cells(topic: int, first: int, used: int, a: Arrays) -> int:
    """Put a topic's entities into cells of the sizes that hold now; the slot to go on with."""
    for slot in range(first, used):
        if (
            a.states[slot * 16 + at.KIND] == at.FREE or a.states[slot * 16 + at.TOPIC] != topic
            or a.states[slot * 16 + at.RECORD] < 0
        ):
            continue
        if a.counters[at.FREE_CHUNK] < 0 and a.counters[at.CHUNKS] * 32 >= len(a.records):
            return slot
        if a.counters[at.USED] * 4 >= len(a.table):
            return slot
        level = level_for(slot, a)
        if level != a.states[slot * 16 + at.LEVEL]:
            pull_in(slot, level, a)
            add_to_cells(slot, a)
    return used
