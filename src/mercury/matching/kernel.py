"""The kernel: applies updates one after the other to the index, and says what happened to pairs.

Publications and subscriptions stand in cells of their topic; an update looks only at the cells of
the other side that it can reach. A cell is a list of chunks of eight records, so that what is
compared lies together in memory. Pairs that match are kept in a list at each of their members:
leaving is found without looking around, and hysteresis and dwell have something to remember.

A call goes as far as its arrays allow and returns what it needs; the host provides it and calls
again. Work that was begun is not repeated: who has been seen in this update bears its stamp.
"""

from __future__ import annotations

import math
from typing import Any

from mercury.matching import layout as at
from mercury.matching.cells import arc_m, column_of, columns_in, key_of, reach_deg, row_of
from mercury.matching.compiling import compiled, inlined, prefetch

_ENTER, _INSIDE, _EXIT, _DWELL = 1, 2, 3, 4
_MOVED, _CHANGED, _WITHDRAWN, _EXPIRED, _TIME = 1, 2, 3, 4, 5
_SPREAD = -7046029254386353131  # the golden ratio in 64 bits: spreads neighbouring cells
_EARTH_M = 6_371_008.7714
_DEGREE = math.pi / 180.0
_AHEAD, _CLOSER, _CLOSE = 16, 10, 4


# The table of cells


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
    slot: int, key: int, counters: Any, numbers: Any, clocks: Any, states: Any, table: Any,
    records: Any, singles: Any, wholes: Any,
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
    radius = numbers[slot * 8 + at.RADIUS]
    if states[slot * 16 + at.KIND] == at.POLYGON:
        radius = radius * 1.001 + 1.0
    singles[8 * record + at.SINGLE_RADIUS] = radius * 1.000001 + 0.001  # never less, as it is rounded
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
    wanted_deg = 1.5 * numbers[slot * 8 + at.RADIUS] / _EARTH_M / _DEGREE
    while level < 12 and 1.0 < wanted_deg * (4096 >> level):
        level = min(level + 2, 12)
    return level


@inlined
def settle(
    slot: int, counters: Any, numbers: Any, clocks: Any, states: Any, table: Any,
    records: Any, singles: Any, wholes: Any, columns: Any, levels: Any, widest: Any,
) -> None:
    """See to it that an entity stands in the cell of its position."""
    kind = states[slot * 16 + at.KIND]
    topic = states[slot * 16 + at.TOPIC]
    side = 0 if kind == at.PUBLICATION else 1
    level = states[slot * 16 + at.LEVEL]
    if states[slot * 16 + at.RECORD] < 0:
        level = level_for(slot, numbers, states, levels)
        states[slot * 16 + at.LEVEL] = level
        entry = (topic * 2 + side) * 16 + level
        radius = numbers[slot * 8 + at.RADIUS]
        if kind == at.POLYGON:
            radius = radius * 1.001 + 1.0
        widest[2 * entry] += 1.0
        widest[2 * entry + 1] = max(widest[2 * entry + 1], radius)
    lat = numbers[slot * 8 + at.LAT]
    row = row_of(lat, level)
    width = columns_in(row, level, columns)
    column = column_of(numbers[slot * 8 + at.LON], width)
    key = key_of(side, topic, level, row, column)
    if states[slot * 16 + at.RECORD] >= 0 and clocks[slot * 8 + at.KEY] != key:
        take_record(slot, counters, clocks, states, table, records, wholes)
    if states[slot * 16 + at.RECORD] < 0:
        put_record(
            slot, key, counters, numbers, clocks, states, table, records, singles, wholes
        )
    record = states[slot * 16 + at.RECORD]
    records[4 * record] = numbers[slot * 8 + at.X]
    records[4 * record + 1] = numbers[slot * 8 + at.Y]
    records[4 * record + 2] = numbers[slot * 8 + at.Z]


@compiled
def unsettle(
    slot: int, counters: Any, clocks: Any, states: Any, table: Any, records: Any,
    wholes: Any, widest: Any,
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


# Scopes


@inlined
def to_polygon_m(lat: float, lon: float, slot: int, numbers: Any, states: Any, edges: Any) -> float:
    """How far a place is from a polygon; 0 inside it. Edges are straight in longitude, latitude."""
    lon -= numbers[slot * 8 + at.LON]
    if lon > 180.0:
        lon -= 360.0
    elif lon < -180.0:
        lon += 360.0
    first = states[slot * 16 + at.EDGE]
    squeeze = math.cos(lat * _DEGREE)
    inside = False
    nearest = math.inf
    for edge in range(first, first + states[slot * 16 + at.EDGES]):
        y1, x1 = edges[4 * edge] - lat, edges[4 * edge + 1] - lon
        y2, x2 = edges[4 * edge + 2] - lat, edges[4 * edge + 3] - lon
        if (y1 > 0.0) != (y2 > 0.0) and (x1 * y2 - x2 * y1 > 0.0) == (y2 > y1):
            inside = not inside
        x1 *= squeeze
        x2 *= squeeze
        length = (x2 - x1) ** 2 + (y2 - y1) ** 2
        along = 0.0
        if length > 0.0:
            along = min(max(-(x1 * (x2 - x1) + y1 * (y2 - y1)) / length, 0.0), 1.0)
        nearest = min(nearest, (x1 + along * (x2 - x1)) ** 2 + (y1 + along * (y2 - y1)) ** 2)
    return 0.0 if inside else math.sqrt(nearest) * _DEGREE * _EARTH_M


@inlined
def distance_m(pub: int, sub: int, numbers: Any, states: Any, edges: Any) -> float:
    """From the centre of a circle, or to the border of a polygon from outside."""
    if states[sub * 16 + at.KIND] == at.POLYGON:
        return to_polygon_m(
            numbers[pub * 8 + at.LAT], numbers[pub * 8 + at.LON], sub, numbers, states, edges
        )
    x = numbers[pub * 8 + at.X] - numbers[sub * 8 + at.X]
    y = numbers[pub * 8 + at.Y] - numbers[sub * 8 + at.Y]
    z = numbers[pub * 8 + at.Z] - numbers[sub * 8 + at.Z]
    return arc_m(x * x + y * y + z * z)


@inlined
def reach_m(pub: int, sub: int, numbers: Any, states: Any) -> float:
    """How near a pair must be to match."""
    if states[sub * 16 + at.KIND] == at.POLYGON:
        return numbers[pub * 8 + at.RADIUS]
    return numbers[pub * 8 + at.RADIUS] + numbers[sub * 8 + at.RADIUS]


@inlined
def slack_m(pub: int, sub: int, numbers: Any) -> float:
    """How much farther a pair may be and still match: as far as positions may be wrong, too."""
    a, b = numbers[pub * 8 + at.ACCURACY], numbers[sub * 8 + at.ACCURACY]
    size = numbers[pub * 8 + at.RADIUS] + numbers[sub * 8 + at.RADIUS]
    return max(numbers[sub * 8 + at.SLACK], min(math.sqrt(a * a + b * b), size))


@inlined
def verdict_on(sub: int, pub: int, states: Any, verdicts: Any, counters: Any) -> int:
    """Whether values pass a filter: 1 no, 2 yes, 0 not known yet."""
    wish = states[sub * 16 + at.CONTENT]
    if wish == 0:
        return 2
    content = states[pub * 16 + at.CONTENT]
    place = slot_of((wish << 31) | content, verdicts)
    if verdicts[2 * place] == 0:
        counters[at.FILTER] = wish
        counters[at.CONTENT_ASKED] = content
        return 0
    return verdicts[2 * place + 1]


# Pairs


@inlined
def link(pair: int, member: int, side: int, pairs: Any, states: Any) -> None:
    head = states[member * 16 + at.HEAD]
    pairs[pair * 8 + at.MEMBER + side] = member
    pairs[pair * 8 + at.NEXT + side] = head
    pairs[pair * 8 + at.PREVIOUS + side] = -1
    if head >= 0:
        pairs[head * 8 + at.PREVIOUS + side] = pair
    states[member * 16 + at.HEAD] = pair
    states[member * 16 + at.DEGREE] += 1


@inlined
def unlink(pair: int, side: int, pairs: Any, states: Any) -> None:
    member = pairs[pair * 8 + at.MEMBER + side]
    following = pairs[pair * 8 + at.NEXT + side]
    previous = pairs[pair * 8 + at.PREVIOUS + side]
    if previous >= 0:
        pairs[previous * 8 + at.NEXT + side] = following
    else:
        states[member * 16 + at.HEAD] = following
    if following >= 0:
        pairs[following * 8 + at.PREVIOUS + side] = previous
    states[member * 16 + at.DEGREE] -= 1


@inlined
def part(pair: int, pairs: Any, states: Any, counters: Any) -> None:
    """Forget a pair."""
    unlink(pair, 0, pairs, states)
    unlink(pair, 1, pairs, states)
    pairs[pair * 8 + at.MEMBER] = -1
    pairs[pair * 8 + at.NEXT] = counters[at.FREE_PAIR]
    counters[at.FREE_PAIR] = pair
    counters[at.ALIVE_PAIRS] -= 1


@inlined
def tell(
    happening: int, cause: int, pub: int, sub: int, time_us: int, distance: float, counters: Any,
    numbers: Any, states: Any, out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> None:
    """Write an event down."""
    event = counters[at.EVENTS]
    counters[at.EVENTS] = event + 1
    out_marks[2 * event] = happening
    out_marks[2 * event + 1] = cause
    out_wholes[3 * event] = (states[pub * 16 + at.GENERATION] << 32) | pub
    out_wholes[3 * event + 1] = (states[sub * 16 + at.GENERATION] << 32) | sub
    out_wholes[3 * event + 2] = time_us
    out_numbers[3 * event] = distance
    out_numbers[3 * event + 1] = numbers[pub * 8 + at.LAT]
    out_numbers[3 * event + 2] = numbers[pub * 8 + at.LON]


@inlined
def judge_pairs(
    slot: int, operation: int, cause: int, time_us: int, stamp: int, counters: Any, numbers: Any,
    clocks: Any, states: Any, pairs: Any, edges: Any, verdicts: Any, out_marks: Any,
    out_wholes: Any, out_numbers: Any,
) -> int:
    """Which of an entity's pairs go on; False if a verdict is wanted first."""
    side = 0 if states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    pair = states[slot * 16 + at.HEAD]
    while pair >= 0:
        following = pairs[pair * 8 + at.NEXT + side]
        other = pairs[pair * 8 + at.MEMBER + 1 - side]
        pub, sub = (slot, other) if side == 0 else (other, slot)
        distance = distance_m(pub, sub, numbers, states, edges)
        stays = distance <= reach_m(pub, sub, numbers, states) + slack_m(pub, sub, numbers)
        if operation == at.JUDGE and stays:
            verdict = verdict_on(sub, pub, states, verdicts, counters)
            if verdict == 0:
                return False
            stays = verdict == 2
        elif operation >= at.REMOVE:
            stays = False
        if stays:
            clocks[other * 8 + at.SEEN] = stamp
            if operation == at.MOVE and states[sub * 16 + at.WANTS] & at.WANTS_INSIDE:
                tell(
                    _INSIDE, cause, pub, sub, time_us, distance, counters, numbers, states,
                    out_marks, out_wholes, out_numbers,
                )
        else:
            if operation != at.REMOVE_SILENTLY:
                tell(
                    _EXIT, cause, pub, sub, time_us, distance, counters, numbers, states,
                    out_marks, out_wholes, out_numbers,
                )
            part(pair, pairs, states, counters)
        pair = following
    return True


@inlined
def look_in_cells(
    slot: int, level: int, window_m: float, cause: int, time_us: int, stamp: int, counters: Any,
    numbers: Any, clocks: Any, states: Any, table: Any, records: Any, singles: Any,
    wholes: Any, pairs: Any, since: Any, edges: Any, verdicts: Any, columns: Any, looks: Any,
    out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> int:
    """Let an entity meet those of the other side in the cells of a level; DONE or what is wanted."""
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
        west = int(math.floor((lon - lon_deg + 180.0) * scale))
        east = int(math.floor((lon + lon_deg + 180.0) * scale))
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
    times_us: Any, accuracies: Any, causes: Any, counters: Any, numbers: Any, clocks: Any, states: Any, table: Any,
    records: Any, singles: Any, wholes: Any, pairs: Any, since: Any, edges: Any,
    verdicts: Any, columns: Any, levels: Any, widest: Any, looks: Any, out_marks: Any,
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
