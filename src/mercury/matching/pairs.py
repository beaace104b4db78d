"""Pairs that match or soon may: how near they must be, and the lists at each of their members.

Because a pair is kept, coming and leaving is found without looking around, and hysteresis and dwell
have something to remember.
"""

from __future__ import annotations

import math
from typing import Any

from mercury.matching import layout as at
from mercury.matching.cell_lists import slot_of
from mercury.matching.cells import DEGREE_M, arc_m
from mercury.matching.compiling import inlined
from mercury.matching.references import out_of_reach

_ENTER, _INSIDE, _EXIT = 1, 2, 3  # EventType

# The arrays travel in one order through all functions, several to a line.
# fmt: off


@inlined
def to_polygon_m(lat: float, lon: float, slot: int, numbers: Any, states: Any, edges: Any) -> float:
    """How far a place is from a polygon; 0 inside it. Edges are straight in longitude, latitude."""
    lon -= numbers[slot * 8 + at.LON]
    if lon > 180.0:
        lon -= 360.0
    elif lon < -180.0:
        lon += 360.0
    first = states[slot * 16 + at.EDGE]
    squeeze = math.cos(lat * (math.pi / 180.0))
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
    return 0.0 if inside else math.sqrt(nearest) * DEGREE_M


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
    filter_id = states[sub * 16 + at.CONTENT]
    if filter_id == 0:
        return 2
    content = states[pub * 16 + at.CONTENT]
    place = slot_of((filter_id << 31) | content, verdicts)
    if verdicts[2 * place] == 0:
        counters[at.FILTER] = filter_id
        counters[at.CONTENT_ASKED] = content
        return 0
    return verdicts[2 * place + 1]


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
    """Forget a pair that does not match."""
    unlink(pair, 0, pairs, states)
    unlink(pair, 1, pairs, states)
    pairs[pair * 8 + at.MEMBER] = -1
    pairs[pair * 8 + at.NEXT] = counters[at.FREE_PAIR]
    counters[at.FREE_PAIR] = pair


@inlined
def tell(
    event_type: int, reason: int, pub: int, sub: int, time_us: int, distance: float, counters: Any,
    numbers: Any, states: Any, out_marks: Any, out_wholes: Any, out_numbers: Any,
) -> None:
    """Write an event down."""
    event = counters[at.EVENTS]
    counters[at.EVENTS] = event + 1
    out_marks[2 * event] = event_type
    out_marks[2 * event + 1] = reason
    out_wholes[4 * event] = (states[pub * 16 + at.GENERATION] << 32) | pub
    out_wholes[4 * event + 1] = (states[sub * 16 + at.GENERATION] << 32) | sub
    out_wholes[4 * event + 2] = time_us
    out_wholes[4 * event + 3] = counters[at.ROW]
    out_numbers[3 * event] = distance
    out_numbers[3 * event + 1] = numbers[pub * 8 + at.LAT]
    out_numbers[3 * event + 2] = numbers[pub * 8 + at.LON]


@inlined
def enter(
    pair: int, reason: int, pub: int, sub: int, time_us: int, distance: float, counters: Any,
    numbers: Any, clocks: Any, states: Any, pairs: Any, since: Any, out_marks: Any,
    out_wholes: Any, out_numbers: Any,
) -> None:
    """A pair begins to match."""
    pairs[pair * 8 + at.INSIDE] = 1
    pairs[pair * 8 + at.DWELLED] = 0
    since[pair] = time_us
    if clocks[sub * 8 + at.DWELL] >= 0:
        due_us = time_us + clocks[sub * 8 + at.DWELL]
        counters[at.NEXT_DWELL_US] = min(counters[at.NEXT_DWELL_US], due_us)
    counters[at.ALIVE_PAIRS] += 1
    tell(
        _ENTER, reason, pub, sub, time_us, distance, counters, numbers, states,
        out_marks, out_wholes, out_numbers,
    )


@inlined
def judge_pairs(
    slot: int, operation: int, reason: int, time_us: int, stamp: int, counters: Any, numbers: Any,
    clocks: Any, states: Any, pairs: Any, since: Any, edges: Any, verdicts: Any, out_marks: Any,
    out_wholes: Any, out_numbers: Any,
) -> int:
    """What becomes of an entity's pairs; how many do not match, or −1 if a verdict is wanted."""
    side = 0 if states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    false_candidates = 0
    pair = states[slot * 16 + at.HEAD]
    while pair >= 0:
        following = pairs[pair * 8 + at.NEXT + side]
        other = pairs[pair * 8 + at.MEMBER + 1 - side]
        pub, sub = (slot, other) if side == 0 else (other, slot)
        distance = distance_m(pub, sub, numbers, states, edges)
        reach = reach_m(pub, sub, numbers, states)
        goes_on = operation < at.REMOVE
        if operation == at.JUDGE:
            verdict = verdict_on(sub, pub, states, verdicts, counters)
            if verdict == 0:
                return -1
            goes_on = verdict == 2
        if pairs[pair * 8 + at.INSIDE]:
            if goes_on and distance <= reach + slack_m(pub, sub, numbers):
                if operation == at.MOVE and states[sub * 16 + at.WANTS] & at.WANTS_INSIDE:
                    tell(
                        _INSIDE, reason, pub, sub, time_us, distance, counters, numbers, states,
                        out_marks, out_wholes, out_numbers,
                    )
            else:
                pairs[pair * 8 + at.INSIDE] = 0
                counters[at.ALIVE_PAIRS] -= 1
                if operation != at.REMOVE_SILENTLY:
                    tell(
                        _EXIT, reason, pub, sub, time_us, distance, counters, numbers, states,
                        out_marks, out_wholes, out_numbers,
                    )
        elif goes_on and distance <= reach:
            enter(
                pair, reason, pub, sub, time_us, distance, counters, numbers, clocks, states, pairs,
                since, out_marks, out_wholes, out_numbers,
            )
        if pairs[pair * 8 + at.INSIDE] == 0:
            false_candidates += 1
            if counters[at.LOOKS_AROUND]:
                goes_on = goes_on and not out_of_reach(slot, other, numbers, clocks, states)
            if not goes_on:
                part(pair, pairs, states, counters)
        if counters[at.LOOKS_AROUND]:
            clocks[other * 8 + at.SEEN] = stamp  # whoever was let go need not be found again
        pair = following
    return false_candidates
