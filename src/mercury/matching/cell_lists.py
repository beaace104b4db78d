"""Who stands in which cell: a table of cells, each a list of chunks with seven records."""

from __future__ import annotations

from typing import Any

from mercury.matching import layout as at
from mercury.matching.cells import DEGREE_M, column_of, columns_in, key_of, row_of
from mercury.matching.compiling import compiled, inlined
from mercury.matching.references import PARTS, pull_in, size_m, skin_m

_SPREAD = -7046029254386353131  # the golden ratio in 64 bits: spreads neighbouring cells

# The arrays travel in one order through all functions, several to a line.
# fmt: off


@inlined
def spread(key: int, table: Any) -> int:
    """The place in a table where a key is looked for first: all of its bits count."""
    return (((key ^ (key >> 32)) * _SPREAD) >> 36) & (len(table) // 2 - 1)


@inlined
def slot_of(key: int, table: Any) -> int:
    """Where a cell is in the table, or the free place where it would be."""
    mask = len(table) // 2 - 1
    place = spread(key, table)
    while table[2 * place] != key and table[2 * place] != 0:
        place = (place + 1) & mask
    return place


@inlined
def put_record(
    slot: int, key: int, counters: Any, clocks: Any, states: Any, table: Any, wholes: Any,
) -> None:
    """Put an entity into a cell."""
    place = slot_of(key, table)
    if table[2 * place] == 0:
        table[2 * place] = key
        table[2 * place + 1] = -1
        counters[at.USED] += 1
    head = table[2 * place + 1]
    if head < 0 or wholes[64 * head + at.COUNT] == at.MOST_RECORDS:
        chunk = counters[at.FREE_CHUNK]
        if chunk >= 0:
            counters[at.FREE_CHUNK] = wholes[64 * chunk + at.FOLLOWING]
        else:
            chunk = counters[at.CHUNKS]
            counters[at.CHUNKS] += 1
        wholes[64 * chunk + at.FOLLOWING] = head
        wholes[64 * chunk + at.COUNT] = 0
        table[2 * place + 1] = chunk
        head = chunk
    wholes[64 * head + at.COUNT] += 1
    record = head * at.CHUNK_ROWS + wholes[64 * head + at.COUNT]
    wholes[8 * record + at.WHOLE_SLOT] = slot
    states[slot * 16 + at.RECORD] = record
    clocks[slot * 8 + at.KEY] = key


@inlined
def take_record(
    slot: int, counters: Any, clocks: Any, states: Any, table: Any, records: Any,
    wholes: Any,
) -> None:
    """Take an entity out of its cell; the last of the cell's first chunk fills its place."""
    record = states[slot * 16 + at.RECORD]
    place = slot_of(clocks[slot * 8 + at.KEY], table)
    head = table[2 * place + 1]
    last = head * at.CHUNK_ROWS + wholes[64 * head + at.COUNT]
    wholes[64 * head + at.COUNT] -= 1
    if last != record:
        for number in range(at.ROW_NUMBERS):
            records[4 * record + number] = records[4 * last + number]
        states[wholes[8 * record + at.WHOLE_SLOT] * 16 + at.RECORD] = record
    if wholes[64 * head + at.COUNT] == 0:
        table[2 * place + 1] = wholes[64 * head + at.FOLLOWING]
        wholes[64 * head + at.FOLLOWING] = counters[at.FREE_CHUNK]
        counters[at.FREE_CHUNK] = head
    states[slot * 16 + at.RECORD] = -1


@compiled
def rebuild_table(old: Any, new: Any) -> int:
    """Copy the cells that hold somebody; returns how many."""
    used = 0
    for place in range(len(old) // 2):
        if old[2 * place] != 0 and old[2 * place + 1] >= 0:
            found = slot_of(old[2 * place], new)
            new[2 * found] = old[2 * place]
            new[2 * found + 1] = old[2 * place + 1]
            used += 1
    return used


@compiled
def put_verdict(key: int, verdict: int, verdicts: Any) -> None:
    place = slot_of(key, verdicts)
    verdicts[2 * place] = key
    verdicts[2 * place + 1] = verdict


@inlined
def level_for(slot: int, numbers: Any, states: Any, levels: Any) -> int:
    """The level of cells that an entity stands in: publications of a topic share one."""
    topic = states[slot * 16 + at.TOPIC]
    if states[slot * 16 + at.KIND] == at.PUBLICATION:
        return levels[2 * topic]
    level = levels[2 * topic + 1]
    wanted_deg = 1.5 * numbers[slot * 8 + at.RADIUS] / DEGREE_M
    while level < 12 and wanted_deg * (4096 >> level) > 1.0:
        level = min(level + 2, 12)
    return level


@compiled
def unsettle(
    slot: int, counters: Any, clocks: Any, states: Any, table: Any, records: Any,
    wholes: Any, widest: Any, inhabited: Any,
) -> None:
    """Take an entity out of the cells."""
    if states[slot * 16 + at.RECORD] < 0:
        return
    take_record(slot, counters, clocks, states, table, records, wholes)
    side = 0 if states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    entry = (states[slot * 16 + at.TOPIC] * 2 + side) * 16 + states[slot * 16 + at.LEVEL]
    widest[2 * entry] -= 1.0
    if widest[2 * entry] == 0.0:
        widest[2 * entry + 1] = 0.0
        inhabited[entry >> 4] &= ~(1 << states[slot * 16 + at.LEVEL])


@inlined
def settle(
    slot: int, counters: Any, numbers: Any, clocks: Any, states: Any, table: Any,
    records: Any, singles: Any, wholes: Any, columns: Any, levels: Any, widest: Any, inhabited: Any,
) -> None:
    """Put an entity into the cell of its reference position, which is where it is now."""
    topic = states[slot * 16 + at.TOPIC]
    side = 0 if states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    level = level_for(slot, numbers, states, levels)
    entry = (topic * 2 + side) * 16 + level
    size = size_m(slot, numbers, states) + skin_m(slot, clocks)
    if states[slot * 16 + at.RECORD] >= 0 and states[slot * 16 + at.LEVEL] != level:
        unsettle(slot, counters, clocks, states, table, records, wholes, widest, inhabited)
    if states[slot * 16 + at.RECORD] < 0:
        states[slot * 16 + at.LEVEL] = level
        if widest[2 * entry] == 0.0:
            counters[at.WIDENED] += 1
        widest[2 * entry] += 1.0
        inhabited[topic * 2 + side] |= 1 << level
    if size > widest[2 * entry + 1]:
        counters[at.WIDENED] += 1  # what was foreseen before does not hold
        widest[2 * entry + 1] = size
    row = row_of(numbers[slot * 8 + at.LAT], level)
    column = column_of(numbers[slot * 8 + at.LON], columns_in(row, level, columns))
    key = key_of(side, topic, level, row, column)
    if states[slot * 16 + at.RECORD] >= 0 and clocks[slot * 8 + at.KEY] != key:
        take_record(slot, counters, clocks, states, table, records, wholes)
    if states[slot * 16 + at.RECORD] < 0:
        put_record(slot, key, counters, clocks, states, table, wholes)
    record = states[slot * 16 + at.RECORD]
    for axis in range(3):
        records[4 * record + axis] = states[slot * 16 + at.REFERENCE + axis] * (1.0 / PARTS)
    singles[8 * record + at.SINGLE_RADIUS] = size * 1.000001 + 0.001  # never rounded down


@compiled
def resettle(
    topic: int, first: int, used: int, counters: Any, numbers: Any, clocks: Any, states: Any,
    table: Any, records: Any, singles: Any, wholes: Any, columns: Any, levels: Any, widest: Any,
    inhabited: Any,
) -> int:
    """Put a topic's entities into cells of the sizes that hold now; the slot to go on with."""
    for slot in range(first, used):
        if (
            states[slot * 16 + at.KIND] == at.FREE or states[slot * 16 + at.TOPIC] != topic
            or states[slot * 16 + at.RECORD] < 0
        ):
            continue
        if counters[at.FREE_CHUNK] < 0 and counters[at.CHUNKS] * 32 >= len(records):
            return slot
        if counters[at.USED] * 4 >= len(table):
            return slot
        if level_for(slot, numbers, states, levels) != states[slot * 16 + at.LEVEL]:
            pull_in(slot, level_for(slot, numbers, states, levels), numbers, clocks, states)
            settle(
                slot, counters, numbers, clocks, states, table, records, singles, wholes, columns,
                levels, widest, inhabited,
            )
    return used
