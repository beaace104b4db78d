"""The kernel: applies updates one after the other to the index, and says what happened to pairs.

An update looks at its own pairs, then, if it has left its skin, at the cells of the other side
that it can reach. What lies in memory at random places is asked for some updates before it is
needed.

A call goes as far as its arrays allow and returns what it needs; the host provides it and calls
again. Work that was begun is not repeated: who has been seen in this update bears its stamp.
"""

from __future__ import annotations

import math
from typing import Any

from mercury.matching import layout as at
from mercury.matching.cell_lists import settle, slot_of, spread, unsettle
from mercury.matching.cells import columns_in, key_of, reach_deg, row_of
from mercury.matching.compiling import called, compiled, inlined, prefetch
from mercury.matching.pairs import distance_m, enter, judge_pairs, link, reach_m, tell, verdict_on
from mercury.matching.references import (
    PARTS,
    ROUNDING_M,
    coming_skin,
    next_skin,
    set_reference,
    size_m,
    skin_m,
    strayed_squared,
)

_DWELL = 4  # EventType
NEVER_US = 1 << 62
_TIME = 5  # Cause
_AHEAD, _CLOSER, _CLOSE = 28, 18, 9  # updates
_RING, _FIRST, _CELLS = 32, 4, 12  # updates that are noted, and cells of each from the fourth on
_NOTE = _FIRST + _CELLS

# The arrays travel in one order through all functions, several to a line.
# fmt: off


@inlined
def meet_in_cell(
    chunk: int, slot: int, reason: int, time_us: int, stamp: int, counters: Any, numbers: Any,
    clocks: Any, states: Any, records: Any, singles: Any, wholes: Any, pairs: Any, since: Any,
    edges: Any, verdicts: Any, out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> int:
    """Let an entity meet those of a cell; DONE or what is wanted."""
    kind = states[slot * 16 + at.KIND]
    x = states[slot * 16 + at.REFERENCE] * (1.0 / PARTS)
    y = states[slot * 16 + at.REFERENCE + 1] * (1.0 / PARTS)
    z = states[slot * 16 + at.REFERENCE + 2] * (1.0 / PARTS)
    own = size_m(slot, numbers, states) + skin_m(slot, clocks) + ROUNDING_M
    while chunk >= 0:
        first = chunk * at.CHUNK_ROWS + 1
        for record in range(first, first + wholes[64 * chunk + at.COUNT]):
            dx = records[4 * record] - x
            dy = records[4 * record + 1] - y
            dz = records[4 * record + 2] - z
            limit = singles[8 * record + at.SINGLE_RADIUS] + own
            if dx * dx + dy * dy + dz * dz > limit * limit:
                continue
            other = wholes[8 * record + at.WHOLE_SLOT]
            if clocks[other * 8 + at.SEEN] == stamp:
                continue
            pub, sub = (slot, other) if kind == at.PUBLICATION else (other, slot)
            verdict = verdict_on(sub, pub, states, verdicts, counters)
            if verdict == 0:
                return at.A_VERDICT
            if verdict == 1:
                clocks[other * 8 + at.SEEN] = stamp
                continue
            if counters[at.EVENTS] * 2 >= len(out_marks):
                return at.MORE_EVENTS
            pair = counters[at.FREE_PAIR]
            if pair >= 0:
                counters[at.FREE_PAIR] = pairs[pair * 8 + at.NEXT]
            elif counters[at.PAIRS] < len(since):
                pair = counters[at.PAIRS]
                counters[at.PAIRS] += 1
            else:
                return at.MORE_PAIRS
            clocks[other * 8 + at.SEEN] = stamp
            link(pair, pub, 0, pairs, states)
            link(pair, sub, 1, pairs, states)
            pairs[pair * 8 + at.INSIDE] = 0
            distance = distance_m(pub, sub, numbers, states, edges)
            if distance <= reach_m(pub, sub, numbers, states):
                enter(
                    pair, reason, pub, sub, time_us, distance, counters, numbers, clocks, states,
                    pairs, since, out_marks, out_wholes, out_numbers,
                )
        counters[at.COMPARED] += wholes[64 * chunk + at.COUNT]
        chunk = wholes[64 * chunk + at.FOLLOWING]
    return at.DONE


@inlined
def window(
    topic: int, other_side: int, level: int, radius: float, x: float, y: float, lat: float,
    widest: Any,
) -> tuple[float, int, int]:
    """How far in longitude and which rows of a level an entity can reach."""
    entry = (topic * 2 + other_side) * 16 + level
    lat_deg, lon_deg = reach_deg(x, y, lat, radius + widest[2 * entry + 1] + ROUNDING_M)
    first = row_of(max(lat - lat_deg, -90.0), level)
    last = row_of(min(lat + lat_deg, 90.0), level)
    return lon_deg, first, last


@called
def look_around(
    slot: int, reason: int, time_us: int, stamp: int, counters: Any, numbers: Any, clocks: Any,
    states: Any, table: Any, records: Any, singles: Any, wholes: Any, pairs: Any, since: Any,
    edges: Any, verdicts: Any, columns: Any, widest: Any, inhabited: Any, out_marks: Any,
    out_wholes: Any, out_numbers: Any,
) -> int:
    """Let an entity meet those of the other side, on all levels; DONE or what is wanted."""
    kind = states[slot * 16 + at.KIND]
    topic = states[slot * 16 + at.TOPIC]
    other_side = 1 if kind == at.PUBLICATION else 0
    lat, lon = numbers[slot * 8 + at.LAT], numbers[slot * 8 + at.LON]
    own = size_m(slot, numbers, states) + skin_m(slot, clocks) + ROUNDING_M
    left = inhabited[topic * 2 + other_side] << 1
    level = -1
    while left > 1:
        left >>= 1
        level += 1
        if not left & 1:
            continue
        lon_deg, first_row, last_row = window(
            topic, other_side, level, own, numbers[slot * 8 + at.X], numbers[slot * 8 + at.Y], lat,
            widest,
        )
        for row in range(first_row, last_row + 1):
            width = columns_in(row, level, columns)
            scale = width * (1.0 / 360.0)
            west = math.floor((lon - lon_deg + 180.0) * scale)
            east = math.floor((lon + lon_deg + 180.0) * scale)
            if east - west + 1 >= width:
                west, east = 0, width - 1
            for step in range(west, east + 1):
                column = step
                if column < 0:
                    column += width
                elif column >= width:
                    column -= width
                counters[at.OPENED] += 1
                place = slot_of(key_of(other_side, topic, level, row, column), table)
                if table[2 * place] == 0:
                    continue
                wanted = meet_in_cell(
                    table[2 * place + 1], slot, reason, time_us, stamp, counters, numbers, clocks,
                    states, records, singles, wholes, pairs, since, edges, verdicts, out_marks,
                    out_wholes, out_numbers,
                )
                if wanted != at.DONE:
                    return wanted
    return at.DONE


@inlined
def prefetch_window(
    row: int, slots: Any, operations: Any, lats: Any, lons: Any, places: Any, counters: Any,
    numbers: Any, clocks: Any, states: Any, table: Any, records: Any, pairs: Any, columns: Any,
    widest: Any, inhabited: Any, prefetched: Any,
) -> None:
    """Note which cells an update will look at, if any, and begin to load where they are."""
    ring = (row & (_RING - 1)) * _NOTE
    prefetched[ring] = -1
    slot = slots[row]
    lat, lon = lats[row], lons[row]
    if (
        slot < 0 or slot * 16 >= len(states) or operations[row] != at.MOVE
        or not (abs(lat) <= 90.0 and abs(lon) <= 180.0)
    ):
        return
    pair = states[slot * 16 + at.HEAD]
    if pair >= 0:
        prefetch(pairs, pair * 8)
    x, y, z = places[0, row], places[1, row], places[2, row]
    skin = skin_m(slot, clocks)
    if strayed_squared(slot, x, y, z, states) <= skin * skin:
        return
    record = states[slot * 16 + at.RECORD]
    if record >= 0:
        prefetch(records, 4 * record)
    topic = states[slot * 16 + at.TOPIC]
    other_side = 1 if states[slot * 16 + at.KIND] == at.PUBLICATION else 0
    skin = coming_skin(slot, clocks)
    own = size_m(slot, numbers, states) + skin * (1.0 / PARTS)
    noted = 0
    left = inhabited[topic * 2 + other_side] << 1
    level = -1
    while left > 1:
        left >>= 1
        level += 1
        if not left & 1:
            continue
        lon_deg, first_row, last_row = window(topic, other_side, level, own, x, y, lat, widest)
        for cell_row in range(first_row, last_row + 1):
            width = columns_in(cell_row, level, columns)
            scale = width * (1.0 / 360.0)
            west = math.floor((lon - lon_deg + 180.0) * scale)
            east = math.floor((lon + lon_deg + 180.0) * scale)
            if west < 0 or east >= width or noted + east - west + 1 > _CELLS:
                return  # many, or across the antimeridian: they are looked for when it is time
            for column in range(west, east + 1):
                key = key_of(other_side, topic, level, cell_row, column)
                prefetched[ring + _FIRST + noted] = key
                noted += 1
                prefetch(table, 2 * spread(key, table))
    prefetched[ring] = row
    prefetched[ring + 1] = noted
    prefetched[ring + 2] = counters[at.WIDENED]
    prefetched[ring + 3] = skin


@inlined
def approach(
    row: int, slots: Any, clocks: Any, numbers: Any, states: Any, table: Any, wholes: Any,
    pairs: Any, prefetched: Any,
) -> None:
    """Begin to load the cells that an update will look at, and the partner it has."""
    slot = slots[row]
    if slot < 0 or slot * 16 >= len(states):
        return
    pair = states[slot * 16 + at.HEAD]
    if pair >= 0:
        other = pairs[pair * 8 + at.MEMBER + (states[slot * 16 + at.KIND] == at.PUBLICATION)]
        prefetch(numbers, other * 8)
        prefetch(states, other * 16)
        following = pairs[pair * 8 + at.NEXT + (states[slot * 16 + at.KIND] != at.PUBLICATION)]
        if following >= 0:
            prefetch(pairs, following * 8)
    ring = (row & (_RING - 1)) * _NOTE
    if prefetched[ring] != row:
        return
    if pair >= 0:
        prefetch(clocks, other * 8)
    for note in range(ring + _FIRST, ring + _FIRST + prefetched[ring + 1]):
        place = slot_of(prefetched[note], table)
        if table[2 * place] != 0 and table[2 * place + 1] >= 0:
            prefetch(wholes, 64 * table[2 * place + 1])
            prefetch(wholes, 64 * table[2 * place + 1] + 16)


@compiled
def apply(
    slots: Any, generations: Any, operations: Any, lats: Any, lons: Any, places: Any,
    times_us: Any, accuracies: Any, reasons: Any, counters: Any, numbers: Any, clocks: Any,
    states: Any, table: Any, records: Any, singles: Any, wholes: Any, pairs: Any, since: Any,
    edges: Any, verdicts: Any, columns: Any, levels: Any, widest: Any, inhabited: Any, looks: Any,
    prefetched: Any, out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> int:
    """Apply updates from `counters[ROW]` on; DONE, or what is wanted before it can go on."""
    count = len(slots)
    capacity = len(states) // 16
    prefetched[:] = -1  # of another call, whose rows were others
    for row in range(counters[at.ROW], count):
        counters[at.ROW] = row
        ahead = row + _AHEAD
        if ahead < count and 0 <= slots[ahead] < capacity:
            prefetch(numbers, slots[ahead] * 8)
            prefetch(clocks, slots[ahead] * 8)
            prefetch(states, slots[ahead] * 16)
        if row + _CLOSER < count:
            prefetch_window(
                row + _CLOSER, slots, operations, lats, lons, places, counters, numbers, clocks,
                states, table, records, pairs, columns, widest, inhabited, prefetched,
            )
        if row + _CLOSE < count:
            approach(
                row + _CLOSE, slots, clocks, numbers, states, table, wholes, pairs, prefetched
            )
        slot = slots[row]
        operation = operations[row]
        time_us = times_us[row]
        strayed = 0.0
        if counters[at.PHASE] == at.NOT_BEGUN:
            if (
                slot < 0 or slot >= capacity or states[slot * 16 + at.KIND] == at.FREE
                or states[slot * 16 + at.GENERATION] != generations[row]
            ):
                counters[at.UNKNOWN] += 1
                continue
            if operation == at.MOVE:
                lat, lon = lats[row], lons[row]
                if not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
                    counters[at.NOWHERE] += 1
                    continue
                if time_us < clocks[slot * 8 + at.TIME]:
                    counters[at.LATE] += 1
                    continue
            if (counters[at.EVENTS] + states[slot * 16 + at.DEGREE]) * 2 > len(out_marks):
                return at.MORE_EVENTS
            if counters[at.FREE_CHUNK] < 0 and counters[at.CHUNKS] * 32 >= len(records):
                return at.MORE_CHUNKS
            if counters[at.USED] * 4 >= len(table):
                return at.MORE_TABLE
            if operation == at.MOVE:
                counters[at.UPDATES] += 1
                clocks[slot * 8 + at.TIME] = time_us
                clocks[slot * 8 + at.EXPIRES] = time_us + clocks[slot * 8 + at.TTL]
                if states[slot * 16 + at.KIND] == at.POLYGON:
                    continue  # it stays where it is; this keeps it alive
                accuracy = accuracies[row]
                if not 0.0 < accuracy < math.inf:
                    accuracy = 0.0
                x, y, z = places[0, row], places[1, row], places[2, row]
                numbers[slot * 8 + at.X] = x
                numbers[slot * 8 + at.Y] = y
                numbers[slot * 8 + at.Z] = z
                numbers[slot * 8 + at.LAT] = lat
                numbers[slot * 8 + at.LON] = lon
                numbers[slot * 8 + at.ACCURACY] = accuracy
                states[slot * 16 + at.STAYED] += 1
                strayed = strayed_squared(slot, x, y, z, states)
            skin = skin_m(slot, clocks)
            counters[at.LOOKS_AROUND] = operation <= at.JUDGE and (
                operation == at.JUDGE or states[slot * 16 + at.RECORD] < 0
                or strayed > skin * skin
            )
            counters[at.STAMP] += 2  # one less than a stamp means: not seen
            counters[at.PHASE] = at.MOVED
        stamp = counters[at.STAMP]
        reason = reasons[row]
        if counters[at.PHASE] == at.MOVED:
            stayed = states[slot * 16 + at.STAYED]
            if counters[at.LOOKS_AROUND]:
                set_reference(slot, numbers, clocks, states)
                settle(
                    slot, counters, numbers, clocks, states, table, records, singles, wholes,
                    columns, levels, widest, inhabited,
                )
            false_candidates = judge_pairs(
                slot, operation, reason, time_us, stamp, counters, numbers, clocks, states, pairs,
                since, edges, verdicts, out_marks, out_wholes, out_numbers,
            )
            if false_candidates < 0:
                return at.A_VERDICT
            if counters[at.LOOKS_AROUND] and operation == at.MOVE:
                clocks[slot * 8 + at.NEXT_SKIN] = next_skin(
                    slot, clocks[slot * 8 + at.SKIN], math.sqrt(strayed), stayed, false_candidates,
                    states[slot * 16 + at.LEVEL],
                )
            counters[at.PHASE] = at.JUDGED
        if operation >= at.REMOVE:
            unsettle(
                slot, counters, clocks, states, table, records, wholes, widest, inhabited
            )
            states[slot * 16 + at.KIND] = at.FREE
        elif counters[at.LOOKS_AROUND]:
            counters[at.COMPARED] = counters[at.OPENED] = 0
            ring = (row & (_RING - 1)) * _NOTE
            wanted = at.DONE
            if (
                prefetched[ring] == row and prefetched[ring + 2] == counters[at.WIDENED]
                and prefetched[ring + 3] == clocks[slot * 8 + at.SKIN]
            ):
                counters[at.OPENED] = prefetched[ring + 1]
                for note in range(ring + _FIRST, ring + _FIRST + prefetched[ring + 1]):
                    place = slot_of(prefetched[note], table)
                    if table[2 * place] == 0:
                        continue
                    wanted = meet_in_cell(
                        table[2 * place + 1], slot, reason, time_us, stamp, counters, numbers,
                        clocks, states, records, singles, wholes, pairs, since, edges, verdicts,
                        out_marks, out_wholes, out_numbers,
                    )
                    if wanted != at.DONE:
                        break
            else:
                wanted = look_around(
                    slot, reason, time_us, stamp, counters, numbers, clocks, states, table, records,
                    singles, wholes, pairs, since, edges, verdicts, columns, widest, inhabited,
                    out_marks, out_wholes, out_numbers,
                )
            if wanted != at.DONE:
                return wanted
            look = states[slot * 16 + at.TOPIC] * at.LOOKS
            if states[slot * 16 + at.KIND] == at.PUBLICATION:
                looks[look + at.PUB_QUERIES] += 1
                looks[look + at.PUB_SCANNED] += counters[at.COMPARED]
            else:
                looks[look + at.SUB_QUERIES] += 1
                looks[look + at.SUB_SCANNED] += counters[at.COMPARED]
                looks[look + at.SUB_CELLS] += counters[at.OPENED]
        counters[at.PHASE] = at.NOT_BEGUN
    counters[at.ROW] = count
    return at.DONE


@compiled
def sweep(
    first: int, time_us: int, counters: Any, numbers: Any, clocks: Any, states: Any, pairs: Any,
    since: Any, edges: Any, out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> int:
    """Tell of pairs that have lasted; returns the pair to go on with, or −1 when done."""
    if first == 0:
        counters[at.NEXT_DWELL_US] = NEVER_US
    for pair in range(first, counters[at.PAIRS]):
        pub = pairs[pair * 8 + at.MEMBER]
        if pairs[pair * 8 + at.INSIDE] == 0 or pairs[pair * 8 + at.DWELLED]:
            continue
        sub = pairs[pair * 8 + at.MEMBER + 1]
        if clocks[sub * 8 + at.DWELL] < 0:
            continue
        due_us = since[pair] + clocks[sub * 8 + at.DWELL]
        last_us = min(clocks[pub * 8 + at.EXPIRES], clocks[sub * 8 + at.EXPIRES])
        if due_us > time_us or due_us > last_us:
            # One that would expire before may yet be heard of again.
            counters[at.NEXT_DWELL_US] = min(counters[at.NEXT_DWELL_US], due_us)
            continue
        if counters[at.EVENTS] * 2 >= len(out_marks):
            return pair
        pairs[pair * 8 + at.DWELLED] = 1
        tell(
            _DWELL, _TIME, pub, sub, due_us, distance_m(pub, sub, numbers, states, edges), counters,
            numbers, states, out_marks, out_wholes, out_numbers,
        )
    return -1
