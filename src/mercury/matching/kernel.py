"""The kernel: applies updates one after the other to the index, and says what happened to pairs.

An update looks at its own pairs, then at the cells of the other side that it can reach. What lies
in memory at random places is asked for some updates before it is needed.

A call goes as far as its arrays allow and returns what it needs; the host provides it and calls
again. Work that was begun is not repeated: who has been seen in this update bears its stamp.
"""

from __future__ import annotations

import math
from typing import Any

from mercury.matching import layout as at
from mercury.matching.cell_lists import settle, slot_of, spread, unsettle
from mercury.matching.cells import columns_in, key_of, reach_deg, row_of
from mercury.matching.compiling import compiled, inlined, prefetch
from mercury.matching.pairs import distance_m, judge_pairs, link, reach_m, tell, verdict_on

_ENTER, _DWELL = 1, 4  # Happening
_TIME = 5  # Cause
_AHEAD, _CLOSER, _CLOSE = 16, 10, 4  # updates

# The arrays travel in one order through all functions, several to a line.
# fmt: off


@inlined
def look_in_cells(
    slot: int, level: int, window_m: float, cause: int, time_us: int, stamp: int, counters: Any,
    numbers: Any, clocks: Any, states: Any, table: Any, records: Any, singles: Any,
    wholes: Any, pairs: Any, since: Any, edges: Any, verdicts: Any, columns: Any, looks: Any,
    out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> int:
    """Let an entity meet those of the other side in a level's cells; DONE or what is wanted."""
    kind = states[slot * 16 + at.KIND]
    topic = states[slot * 16 + at.TOPIC]
    other_side = 1 if kind == at.PUBLICATION else 0
    x, y, z = numbers[slot * 8 + at.X], numbers[slot * 8 + at.Y], numbers[slot * 8 + at.Z]
    lat, lon = numbers[slot * 8 + at.LAT], numbers[slot * 8 + at.LON]
    own = numbers[slot * 8 + at.RADIUS]
    if kind == at.POLYGON:
        own = own * 1.001 + 1.0
    lat_deg, lon_deg = reach_deg(x, y, lat, window_m)
    per_degree = 4096 >> level
    first_row = max(int(max(lat - lat_deg + 90.0, 0.0) * per_degree), 0)
    last_row = row_of(min(lat + lat_deg, 90.0), level)
    scanned = 0
    cells = 0
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
            cells += 1
            place = slot_of(key_of(other_side, topic, level, row, column), table)
            chunk = -1
            if table[2 * place] != 0:
                chunk = table[2 * place + 1]
            while chunk >= 0:
                filled = wholes[64 * chunk + at.COUNT]
                scanned += filled
                first = chunk * at.CHUNK_ROWS + 1
                for record in range(first, first + filled):
                    dx = records[4 * record] - x
                    dy = records[4 * record + 1] - y
                    dz = records[4 * record + 2] - z
                    limit = singles[8 * record + at.SINGLE_RADIUS] + own
                    if dx * dx + dy * dy + dz * dz > limit * limit:
                        continue
                    other = wholes[8 * record + at.WHOLE_SLOT]
                    if clocks[other * 8 + at.SEEN] == stamp:
                        continue
                    pub, sub = (other, slot) if other_side == 0 else (slot, other)
                    distance = distance_m(pub, sub, numbers, states, edges)
                    if distance > reach_m(pub, sub, numbers, states):
                        continue
                    verdict = verdict_on(sub, pub, states, verdicts, counters)
                    if verdict == 0:
                        return at.A_VERDICT
                    clocks[other * 8 + at.SEEN] = stamp
                    if verdict == 1:
                        continue
                    if counters[at.EVENTS] * 2 >= len(out_marks):
                        clocks[other * 8 + at.SEEN] = stamp - 1
                        return at.MORE_EVENTS
                    pair = counters[at.FREE_PAIR]
                    if pair >= 0:
                        counters[at.FREE_PAIR] = pairs[pair * 8 + at.NEXT]
                    elif counters[at.PAIRS] < len(since):
                        pair = counters[at.PAIRS]
                        counters[at.PAIRS] += 1
                    else:
                        clocks[other * 8 + at.SEEN] = stamp - 1
                        return at.MORE_PAIRS
                    link(pair, pub, 0, pairs, states)
                    link(pair, sub, 1, pairs, states)
                    pairs[pair * 8 + at.DWELLED] = 0
                    since[pair] = time_us
                    counters[at.ALIVE_PAIRS] += 1
                    tell(
                        _ENTER, cause, pub, sub, time_us, distance, counters, numbers, states,
                        out_marks, out_wholes, out_numbers,
                    )
                chunk = wholes[64 * chunk + at.FOLLOWING]
    if kind == at.PUBLICATION:
        looks[topic * at.LOOKS + at.PUB_QUERIES] += 1
        looks[topic * at.LOOKS + at.PUB_SCANNED] += scanned
    else:
        looks[topic * at.LOOKS + at.SUB_QUERIES] += 1
        looks[topic * at.LOOKS + at.SUB_SCANNED] += scanned
        looks[topic * at.LOOKS + at.SUB_CELLS] += cells
    return at.DONE


@inlined
def foresee(
    row: int, near: int, slots: Any, operations: Any, lats: Any, lons: Any, places: Any,
    numbers: Any, clocks: Any, states: Any, table: Any, records: Any, wholes: Any, pairs: Any,
    columns: Any, widest: Any,
) -> None:
    """Begin to load what an update will look at: first entries of the table, then the cells."""
    slot = slots[row]
    if slot < 0 or slot * 16 >= len(states) or operations[row] != at.MOVE:
        return
    kind = states[slot * 16 + at.KIND]
    topic = states[slot * 16 + at.TOPIC]
    other_side = 1 if kind == at.PUBLICATION else 0
    pair = states[slot * 16 + at.HEAD]
    if near:
        if pair >= 0:
            other = pairs[pair * 8 + at.MEMBER + other_side]
            if other >= 0:
                prefetch(numbers, other * 8)
                prefetch(clocks, other * 8)
                prefetch(states, other * 16)
    else:
        if pair >= 0:
            prefetch(pairs, pair * 8)
        record = states[slot * 16 + at.RECORD]
        if record >= 0:
            prefetch(records, 4 * record)
    lat, lon = lats[row], lons[row]
    if not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
        return
    first = (topic * 2 + other_side) * 16
    for level in range(13):
        if widest[2 * (first + level)] == 0.0:
            continue
        window_m = numbers[slot * 8 + at.RADIUS] + widest[2 * (first + level) + 1] + 0.01
        lat_deg, lon_deg = reach_deg(places[0, row], places[1, row], lat, window_m)
        first_row = row_of(max(lat - lat_deg, -90.0), level)
        last_row = min(row_of(min(lat + lat_deg, 90.0), level), first_row + 3)
        for cell_row in range(first_row, last_row + 1):
            width = columns_in(cell_row, level, columns)
            scale = width * (1.0 / 360.0)
            west = max(int((lon - lon_deg + 180.0) * scale), 0)
            east = min(int((lon + lon_deg + 180.0) * scale), west + 3, width - 1)
            for column in range(west, east + 1):
                key = key_of(other_side, topic, level, cell_row, column)
                if not near:
                    prefetch(table, 2 * spread(key, table))
                    continue
                place = slot_of(key, table)
                if table[2 * place] != 0 and table[2 * place + 1] >= 0:
                    prefetch(wholes, 64 * table[2 * place + 1])
                    prefetch(wholes, 64 * table[2 * place + 1] + 16)


@compiled
def apply(
    slots: Any, generations: Any, operations: Any, lats: Any, lons: Any, places: Any,
    times_us: Any, accuracies: Any, causes: Any, counters: Any, numbers: Any, clocks: Any,
    states: Any, table: Any, records: Any, singles: Any, wholes: Any, pairs: Any, since: Any,
    edges: Any, verdicts: Any, columns: Any, levels: Any, widest: Any, looks: Any, out_marks: Any,
    out_wholes: Any, out_numbers: Any,
) -> int:
    """Apply updates from `counters[ROW]` on; DONE, or what is wanted before it can go on."""
    count = len(slots)
    capacity = len(states) // 16
    for row in range(counters[at.ROW], count):
        counters[at.ROW] = row
        ahead = row + _AHEAD
        if ahead < count and 0 <= slots[ahead] < capacity:
            prefetch(numbers, slots[ahead] * 8)
            prefetch(clocks, slots[ahead] * 8)
            prefetch(states, slots[ahead] * 16)
        for near in range(2):
            ahead = row + (_CLOSE if near else _CLOSER)
            if ahead < count:
                foresee(
                    ahead, near, slots, operations, lats, lons, places, numbers, clocks, states,
                    table, records, wholes, pairs, columns, widest,
                )
        slot = slots[row]
        operation = operations[row]
        time_us = times_us[row]
        if counters[at.PHASE] == 0:
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
                numbers[slot * 8 + at.X] = places[0, row]
                numbers[slot * 8 + at.Y] = places[1, row]
                numbers[slot * 8 + at.Z] = places[2, row]
                numbers[slot * 8 + at.LAT] = lat
                numbers[slot * 8 + at.LON] = lon
                numbers[slot * 8 + at.ACCURACY] = accuracy
            if operation <= at.JUDGE and not math.isnan(numbers[slot * 8 + at.LAT]):
                settle(
                    slot, counters, numbers, clocks, states, table, records, singles,
                    wholes, columns, levels, widest,
                )
            counters[at.STAMP] += 2  # one less than a stamp means: not seen
        stamp = counters[at.STAMP]
        cause = causes[row]
        if counters[at.PHASE] == 0:
            if not judge_pairs(
                slot, operation, cause, time_us, stamp, counters, numbers, clocks, states, pairs,
                edges, verdicts, out_marks, out_wholes, out_numbers,
            ):
                return at.A_VERDICT
            counters[at.PHASE] = 1
        if operation >= at.REMOVE:
            unsettle(
                slot, counters, clocks, states, table, records, wholes, widest
            )
            states[slot * 16 + at.KIND] = at.FREE
        elif states[slot * 16 + at.RECORD] >= 0:
            topic = states[slot * 16 + at.TOPIC]
            own = numbers[slot * 8 + at.RADIUS]
            first = topic * 32
            if states[slot * 16 + at.KIND] == at.PUBLICATION:
                first += 16
            elif states[slot * 16 + at.KIND] == at.POLYGON:
                own = own * 1.001 + 1.0
            for level in range(13):
                if widest[2 * (first + level)] == 0.0:
                    continue
                wanted = look_in_cells(
                    slot, level, own + widest[2 * (first + level) + 1] + 0.01, cause, time_us,
                    stamp, counters, numbers, clocks, states, table, records, singles,
                    wholes, pairs, since, edges, verdicts, columns, looks, out_marks, out_wholes,
                    out_numbers,
                )
                if wanted != at.DONE:
                    return wanted
        counters[at.PHASE] = 0
    counters[at.ROW] = count
    return at.DONE


@compiled
def sweep(
    first: int, time_us: int, counters: Any, numbers: Any, clocks: Any, states: Any, pairs: Any,
    since: Any, edges: Any, out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> int:
    """Tell of pairs that have lasted; returns the pair to go on with, or −1 when done."""
    for pair in range(first, counters[at.PAIRS]):
        pub = pairs[pair * 8 + at.MEMBER]
        if pub < 0 or pairs[pair * 8 + at.DWELLED]:
            continue
        sub = pairs[pair * 8 + at.MEMBER + 1]
        if clocks[sub * 8 + at.DWELL] < 0:
            continue
        due_us = since[pair] + clocks[sub * 8 + at.DWELL]
        last_us = min(clocks[pub * 8 + at.EXPIRES], clocks[sub * 8 + at.EXPIRES])
        if due_us > time_us or due_us > last_us:
            continue
        if counters[at.EVENTS] * 2 >= len(out_marks):
            return pair
        pairs[pair * 8 + at.DWELLED] = 1
        tell(
            _DWELL, _TIME, pub, sub, due_us, distance_m(pub, sub, numbers, states, edges), counters,
            numbers, states, out_marks, out_wholes, out_numbers,
        )
    return -1
