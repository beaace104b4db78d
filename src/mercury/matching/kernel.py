"""The kernel: applies updates one after the other to the index, and emits events of pairs.

An update looks at its own pairs, then, if it has left its skin, at the cells of the other side
that it can reach. Memory at random addresses is prefetched some updates before it is needed.

A call goes as far as its arrays allow and returns what it needs; the host provides it and calls
again. Work that was done is not repeated: entities seen in this update are marked with its stamp.
"""

from __future__ import annotations

import math
from typing import Any

from mercury.matching import layout as at
from mercury.matching.cell_lists import add_to_cells, bucket_of, remove_from_cells, spread
from mercury.matching.cells import LEVELS, columns_in, key_of, reach_deg, row_of
from mercury.matching.compiling import called, compiled, inlined, prefetch
from mercury.matching.layout import Arrays
from mercury.matching.pairs import (
    distance_m,
    enter,
    judge_pairs,
    link,
    reach_m,
    verdict_on,
    write_event,
)
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
_TIME = 5  # EventReason
_AHEAD, _CLOSER, _CLOSE = 28, 18, 9  # updates
_RING, _FIRST, _CELLS = 32, 4, 12  # updates that are noted, and cells of each from the fourth on
_NOTE = _FIRST + _CELLS

# Several arguments to a line.
# fmt: off


@inlined
def meet_in_cell(chunk: int, slot: int, reason: int, time_us: int, stamp: int, a: Arrays) -> int:
    """Pair an entity with those of a cell; returns DONE or what is wanted."""
    kind = a.states[slot * 16 + at.KIND]
    x = a.states[slot * 16 + at.REFERENCE] * (1.0 / PARTS)
    y = a.states[slot * 16 + at.REFERENCE + 1] * (1.0 / PARTS)
    z = a.states[slot * 16 + at.REFERENCE + 2] * (1.0 / PARTS)
    own = size_m(slot, a) + skin_m(slot, a) + ROUNDING_M
    while chunk >= 0:
        first = chunk * at.CHUNK_ROWS + 1
        for record in range(first, first + a.integers[64 * chunk + at.COUNT]):
            dx = a.records[4 * record] - x
            dy = a.records[4 * record + 1] - y
            dz = a.records[4 * record + 2] - z
            limit = a.singles[8 * record + at.SINGLE_RADIUS] + own
            if dx * dx + dy * dy + dz * dz > limit * limit:
                continue
            other = a.integers[8 * record + at.INTEGER_SLOT]
            if a.clocks[other * 8 + at.SEEN] == stamp:
                continue
            pub, sub = (slot, other) if kind == at.PUBLICATION else (other, slot)
            verdict = verdict_on(sub, pub, a)
            if verdict == 0:
                return at.A_VERDICT
            if verdict == 1:
                a.clocks[other * 8 + at.SEEN] = stamp
                continue
            if a.counters[at.EVENTS] * 2 >= len(a.out_codes):
                return at.MORE_EVENTS
            pair = a.counters[at.FREE_PAIR]
            if pair >= 0:
                a.counters[at.FREE_PAIR] = a.pairs[pair * 8 + at.NEXT]
            elif a.counters[at.PAIRS] < len(a.since):
                pair = a.counters[at.PAIRS]
                a.counters[at.PAIRS] += 1
            else:
                return at.MORE_PAIRS
            a.clocks[other * 8 + at.SEEN] = stamp
            link(pair, pub, 0, a)
            link(pair, sub, 1, a)
            a.pairs[pair * 8 + at.INSIDE] = 0
            distance = distance_m(pub, sub, a)
            if distance <= reach_m(pub, sub, a):
                enter(pair, reason, pub, sub, time_us, distance, a)
        a.counters[at.COMPARED] += a.integers[64 * chunk + at.COUNT]
        chunk = a.integers[64 * chunk + at.FOLLOWING]
    return at.DONE


@inlined
def window(
    topic: int, other_side: int, level: int, radius: float, x: float, y: float, lat: float,
    a: Arrays,
) -> tuple[float, int, int]:
    """How far in longitude and which rows of a level an entity can reach."""
    entry = (topic * 2 + other_side) * 16 + level
    lat_deg, lon_deg = reach_deg(x, y, lat, radius + a.widest[2 * entry + 1] + ROUNDING_M)
    first = row_of(max(lat - lat_deg, -90.0), level)
    last = row_of(min(lat + lat_deg, 90.0), level)
    return lon_deg, first, last


@called
def look_around(slot: int, reason: int, time_us: int, stamp: int, a: Arrays) -> int:
    """Search all levels of the other side for pairs; returns DONE or what is wanted."""
    kind = a.states[slot * 16 + at.KIND]
    topic = a.states[slot * 16 + at.TOPIC]
    other_side = 1 if kind == at.PUBLICATION else 0
    lat, lon = a.numbers[slot * 8 + at.LAT], a.numbers[slot * 8 + at.LON]
    own = size_m(slot, a) + skin_m(slot, a) + ROUNDING_M
    inhabited = a.inhabited[topic * 2 + other_side]
    for level in range(LEVELS):
        if not inhabited >> level & 1:
            continue
        lon_deg, first_row, last_row = window(
            topic, other_side, level, own, a.numbers[slot * 8 + at.X], a.numbers[slot * 8 + at.Y],
            lat, a
        )
        for row in range(first_row, last_row + 1):
            width = columns_in(row, level, a.columns)
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
                a.counters[at.OPENED] += 1
                bucket = bucket_of(key_of(other_side, topic, level, row, column), a.table)
                if a.table[2 * bucket] == 0:
                    continue
                wanted = meet_in_cell(a.table[2 * bucket + 1], slot, reason, time_us, stamp, a)
                if wanted != at.DONE:
                    return wanted
    return at.DONE


@inlined
def prefetch_window(
    row: int, slots: Any, operation: int, lats: Any, lons: Any, points: Any, a: Arrays,
) -> None:
    """Note which cells an update will search, if any, and prefetch their buckets."""
    ring = (row & (_RING - 1)) * _NOTE
    a.prefetched[ring] = -1
    slot = slots[row]
    lat, lon = lats[row], lons[row]
    if (
        slot < 0 or slot * 16 >= len(a.states) or operation != at.MOVE
        or not (abs(lat) <= 90.0 and abs(lon) <= 180.0)
    ):
        return
    pair = a.states[slot * 16 + at.HEAD]
    if pair >= 0:
        prefetch(a.pairs, pair * 8)
    x, y, z = points[0, row], points[1, row], points[2, row]
    skin = skin_m(slot, a)
    if strayed_squared(slot, x, y, z, a) <= skin * skin:
        return
    record = a.states[slot * 16 + at.RECORD]
    if record >= 0:
        prefetch(a.records, 4 * record)
    topic = a.states[slot * 16 + at.TOPIC]
    other_side = 1 if a.states[slot * 16 + at.KIND] == at.PUBLICATION else 0
    skin = coming_skin(slot, a)
    own = size_m(slot, a) + skin * (1.0 / PARTS)
    noted = 0
    inhabited = a.inhabited[topic * 2 + other_side]
    for level in range(LEVELS):
        if not inhabited >> level & 1:
            continue
        lon_deg, first_row, last_row = window(topic, other_side, level, own, x, y, lat, a)
        for cell_row in range(first_row, last_row + 1):
            width = columns_in(cell_row, level, a.columns)
            scale = width * (1.0 / 360.0)
            west = math.floor((lon - lon_deg + 180.0) * scale)
            east = math.floor((lon + lon_deg + 180.0) * scale)
            if west < 0 or east >= width or noted + east - west + 1 > _CELLS:
                return  # many, or across the antimeridian: not prefetched
            for column in range(west, east + 1):
                key = key_of(other_side, topic, level, cell_row, column)
                a.prefetched[ring + _FIRST + noted] = key
                noted += 1
                prefetch(a.table, 2 * spread(key, a.table))
    a.prefetched[ring] = row
    a.prefetched[ring + 1] = noted
    a.prefetched[ring + 2] = a.counters[at.WIDENED]
    a.prefetched[ring + 3] = skin


@inlined
def approach(row: int, slots: Any, a: Arrays) -> None:
    """Prefetch the cells that an update will search, and its partner."""
    slot = slots[row]
    if slot < 0 or slot * 16 >= len(a.states):
        return
    pair = a.states[slot * 16 + at.HEAD]
    if pair >= 0:
        other = a.pairs[pair * 8 + at.MEMBER + (a.states[slot * 16 + at.KIND] == at.PUBLICATION)]
        prefetch(a.numbers, other * 8)
        prefetch(a.states, other * 16)
        following = a.pairs[pair * 8 + at.NEXT + (a.states[slot * 16 + at.KIND] != at.PUBLICATION)]
        if following >= 0:
            prefetch(a.pairs, following * 8)
    ring = (row & (_RING - 1)) * _NOTE
    if a.prefetched[ring] != row:
        return
    if pair >= 0:
        prefetch(a.clocks, other * 8)
    for note in range(ring + _FIRST, ring + _FIRST + a.prefetched[ring + 1]):
        bucket = bucket_of(a.prefetched[note], a.table)
        if a.table[2 * bucket] != 0 and a.table[2 * bucket + 1] >= 0:
            prefetch(a.integers, 64 * a.table[2 * bucket + 1])
            prefetch(a.integers, 64 * a.table[2 * bucket + 1] + 16)


@compiled
def apply(
    operation: int, reason: int, slots: Any, generations: Any, lats: Any, lons: Any, points: Any,
    times_us: Any, accuracies: Any, a: Arrays,
) -> int:
    """Apply updates from `counters[ROW]` on; returns DONE, or what is wanted to continue."""
    count = len(slots)
    capacity = len(a.states) // 16
    a.prefetched[:] = -1  # from an earlier call, with other rows
    for row in range(a.counters[at.ROW], count):
        a.counters[at.ROW] = row
        ahead = row + _AHEAD
        if ahead < count and 0 <= slots[ahead] < capacity:
            prefetch(a.numbers, slots[ahead] * 8)
            prefetch(a.clocks, slots[ahead] * 8)
            prefetch(a.states, slots[ahead] * 16)
        if row + _CLOSER < count:
            prefetch_window(row + _CLOSER, slots, operation, lats, lons, points, a)
        if row + _CLOSE < count:
            approach(row + _CLOSE, slots, a)
        slot = slots[row]
        time_us = times_us[row]
        strayed = 0.0
        if a.counters[at.PHASE] == at.NOT_BEGUN:
            if (
                slot < 0 or slot >= capacity or a.states[slot * 16 + at.KIND] == at.FREE
                or a.states[slot * 16 + at.GENERATION] != generations[row]
            ):
                a.counters[at.UNKNOWN] += 1
                continue
            if operation == at.MOVE:
                lat, lon = lats[row], lons[row]
                if not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
                    a.counters[at.NOWHERE] += 1
                    continue
                if time_us < a.clocks[slot * 8 + at.TIME]:
                    a.counters[at.LATE] += 1
                    continue
            if (a.counters[at.EVENTS] + a.states[slot * 16 + at.DEGREE]) * 2 > len(a.out_codes):
                return at.MORE_EVENTS
            if a.counters[at.FREE_CHUNK] < 0 and a.counters[at.CHUNKS] * 32 >= len(a.records):
                return at.MORE_CHUNKS
            if a.counters[at.USED] * 4 >= len(a.table):
                return at.MORE_TABLE
            if operation == at.MOVE:
                a.counters[at.UPDATES] += 1
                a.clocks[slot * 8 + at.TIME] = time_us
                a.clocks[slot * 8 + at.EXPIRES] = time_us + a.clocks[slot * 8 + at.TTL]
                if a.states[slot * 16 + at.KIND] == at.POLYGON:
                    continue  # only its lifetime is extended
                accuracy = accuracies[row]
                if not 0.0 < accuracy < math.inf:
                    accuracy = 0.0
                x, y, z = points[0, row], points[1, row], points[2, row]
                a.numbers[slot * 8 + at.X] = x
                a.numbers[slot * 8 + at.Y] = y
                a.numbers[slot * 8 + at.Z] = z
                a.numbers[slot * 8 + at.LAT] = lat
                a.numbers[slot * 8 + at.LON] = lon
                a.numbers[slot * 8 + at.ACCURACY] = accuracy
                a.states[slot * 16 + at.STAYED] += 1
                strayed = strayed_squared(slot, x, y, z, a)
            skin = skin_m(slot, a)
            a.counters[at.LOOKS_AROUND] = operation <= at.JUDGE and (
                operation == at.JUDGE or a.states[slot * 16 + at.RECORD] < 0
                or strayed > skin * skin
            )
            a.counters[at.STAMP] += 2  # one less than a stamp means: not seen
            a.counters[at.PHASE] = at.MOVED
        stamp = a.counters[at.STAMP]
        if a.counters[at.PHASE] == at.MOVED:
            stayed = a.states[slot * 16 + at.STAYED]
            if a.counters[at.LOOKS_AROUND]:
                set_reference(slot, a)
                add_to_cells(slot, a)
            false_candidates = judge_pairs(slot, operation, reason, time_us, stamp, a)
            if false_candidates < 0:
                return at.A_VERDICT
            if a.counters[at.LOOKS_AROUND] and operation == at.MOVE:
                a.clocks[slot * 8 + at.NEXT_SKIN] = next_skin(
                    slot, a.clocks[slot * 8 + at.SKIN], math.sqrt(strayed), stayed,
                    false_candidates, a.states[slot * 16 + at.LEVEL]
                )
            a.counters[at.PHASE] = at.JUDGED
        if operation >= at.REMOVE:
            remove_from_cells(slot, a)
            a.states[slot * 16 + at.KIND] = at.FREE
        elif a.counters[at.LOOKS_AROUND]:
            a.counters[at.COMPARED] = a.counters[at.OPENED] = 0
            ring = (row & (_RING - 1)) * _NOTE
            wanted = at.DONE
            if (
                a.prefetched[ring] == row and a.prefetched[ring + 2] == a.counters[at.WIDENED]
                and a.prefetched[ring + 3] == a.clocks[slot * 8 + at.SKIN]
            ):
                a.counters[at.OPENED] = a.prefetched[ring + 1]
                for note in range(ring + _FIRST, ring + _FIRST + a.prefetched[ring + 1]):
                    bucket = bucket_of(a.prefetched[note], a.table)
                    if a.table[2 * bucket] == 0:
                        continue
                    wanted = meet_in_cell(a.table[2 * bucket + 1], slot, reason, time_us, stamp, a)
                    if wanted != at.DONE:
                        break
            else:
                wanted = look_around(slot, reason, time_us, stamp, a)
            if wanted != at.DONE:
                return wanted
            look = a.states[slot * 16 + at.TOPIC] * at.LOOKS
            if a.states[slot * 16 + at.KIND] == at.PUBLICATION:
                a.looks[look + at.PUB_QUERIES] += 1
                a.looks[look + at.PUB_SCANNED] += a.counters[at.COMPARED]
            else:
                a.looks[look + at.SUB_QUERIES] += 1
                a.looks[look + at.SUB_SCANNED] += a.counters[at.COMPARED]
                a.looks[look + at.SUB_CELLS] += a.counters[at.OPENED]
        a.counters[at.PHASE] = at.NOT_BEGUN
    a.counters[at.ROW] = count
    return at.DONE


@compiled
def sweep(first: int, time_us: int, a: Arrays) -> int:
    """Write dwell events; returns the pair to continue with, or −1 when done."""
    if first == 0:
        a.counters[at.NEXT_DWELL_US] = at.NEVER_US
    for pair in range(first, a.counters[at.PAIRS]):
        pub = a.pairs[pair * 8 + at.MEMBER]
        if a.pairs[pair * 8 + at.INSIDE] == 0 or a.pairs[pair * 8 + at.DWELLED]:
            continue
        sub = a.pairs[pair * 8 + at.MEMBER + 1]
        if a.clocks[sub * 8 + at.DWELL] < 0:
            continue
        due_us = a.since[pair] + a.clocks[sub * 8 + at.DWELL]
        last_us = min(a.clocks[pub * 8 + at.EXPIRES], a.clocks[sub * 8 + at.EXPIRES])
        if due_us > time_us or due_us > last_us:
            # One that would expire before may still be updated.
            a.counters[at.NEXT_DWELL_US] = min(a.counters[at.NEXT_DWELL_US], due_us)
            continue
        if a.counters[at.EVENTS] * 2 >= len(a.out_codes):
            return pair
        a.pairs[pair * 8 + at.DWELLED] = 1
        write_event(_DWELL, _TIME, pub, sub, due_us, distance_m(pub, sub, a), a)
    return -1
