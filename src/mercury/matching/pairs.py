"""Pairs that match or soon may: how near they must be, and the lists at each of their members.

A pair is kept while both are near, so enters and exits are found without a search, and hysteresis
and dwell have a state.
"""

from __future__ import annotations

import math

from mercury.geo.distance import DEGREE_M
from mercury.matching import layout as at
from mercury.matching.cell_lists import bucket_of
from mercury.matching.cells import arc_m
from mercury.matching.compiling import inlined
from mercury.matching.layout import Arrays
from mercury.matching.references import out_of_reach

_ENTER, _INSIDE, _EXIT = 1, 2, 3  # EventType

# Several arguments to a line.
# fmt: off


@inlined
def to_polygon_m(lat: float, lon: float, slot: int, a: Arrays) -> float:
    """How far a position is from a polygon, whose edges are straight in degrees; 0 inside it."""
    lon -= a.numbers[slot * 8 + at.LON]
    if lon > 180.0:
        lon -= 360.0
    elif lon < -180.0:
        lon += 360.0
    first = a.states[slot * 16 + at.EDGE]
    squeeze = math.cos(lat * (math.pi / 180.0))
    inside = False
    nearest = math.inf
    for edge in range(first, first + a.states[slot * 16 + at.EDGES]):
        y1, x1 = a.edges[4 * edge] - lat, a.edges[4 * edge + 1] - lon
        y2, x2 = a.edges[4 * edge + 2] - lat, a.edges[4 * edge + 3] - lon
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
def distance_m(pub: int, sub: int, a: Arrays) -> float:
    """From the centre of a circle, or to the border of a polygon from outside."""
    if a.states[sub * 16 + at.KIND] == at.POLYGON:
        return to_polygon_m(a.numbers[pub * 8 + at.LAT], a.numbers[pub * 8 + at.LON], sub, a)
    x = a.numbers[pub * 8 + at.X] - a.numbers[sub * 8 + at.X]
    y = a.numbers[pub * 8 + at.Y] - a.numbers[sub * 8 + at.Y]
    z = a.numbers[pub * 8 + at.Z] - a.numbers[sub * 8 + at.Z]
    return arc_m(x * x + y * y + z * z)


@inlined
def reach_m(pub: int, sub: int, a: Arrays) -> float:
    """How near a pair must be to match."""
    if a.states[sub * 16 + at.KIND] == at.POLYGON:
        return a.numbers[pub * 8 + at.RADIUS]
    return a.numbers[pub * 8 + at.RADIUS] + a.numbers[sub * 8 + at.RADIUS]


@inlined
def slack_m(pub: int, sub: int, a: Arrays) -> float:
    """How much farther a pair may be and still match: hysteresis and position errors."""
    one, other = a.numbers[pub * 8 + at.ACCURACY], a.numbers[sub * 8 + at.ACCURACY]
    size = a.numbers[pub * 8 + at.RADIUS] + a.numbers[sub * 8 + at.RADIUS]
    return max(a.numbers[sub * 8 + at.SLACK], min(math.sqrt(one * one + other * other), size))


@inlined
def verdict_on(sub: int, pub: int, a: Arrays) -> int:
    """Whether values pass a filter: 1 no, 2 yes, 0 not known yet."""
    filter_id = a.states[sub * 16 + at.CONTENT]
    if filter_id == 0:
        return 2
    content = a.states[pub * 16 + at.CONTENT]
    bucket = bucket_of((filter_id << 31) | content, a.verdicts)
    if a.verdicts[2 * bucket] == 0:
        a.counters[at.FILTER] = filter_id
        a.counters[at.CONTENT_ASKED] = content
        return 0
    return a.verdicts[2 * bucket + 1]


@inlined
def link(pair: int, member: int, side: int, a: Arrays) -> None:
    head = a.states[member * 16 + at.HEAD]
    a.pairs[pair * 8 + at.MEMBER + side] = member
    a.pairs[pair * 8 + at.NEXT + side] = head
    a.pairs[pair * 8 + at.PREVIOUS + side] = -1
    if head >= 0:
        a.pairs[head * 8 + at.PREVIOUS + side] = pair
    a.states[member * 16 + at.HEAD] = pair
    a.states[member * 16 + at.DEGREE] += 1


@inlined
def unlink(pair: int, side: int, a: Arrays) -> None:
    member = a.pairs[pair * 8 + at.MEMBER + side]
    following = a.pairs[pair * 8 + at.NEXT + side]
    previous = a.pairs[pair * 8 + at.PREVIOUS + side]
    if previous >= 0:
        a.pairs[previous * 8 + at.NEXT + side] = following
    else:
        a.states[member * 16 + at.HEAD] = following
    if following >= 0:
        a.pairs[following * 8 + at.PREVIOUS + side] = previous
    a.states[member * 16 + at.DEGREE] -= 1


@inlined
def remove_pair(pair: int, a: Arrays) -> None:
    """Remove a pair that does not match."""
    unlink(pair, 0, a)
    unlink(pair, 1, a)
    a.pairs[pair * 8 + at.MEMBER] = -1
    a.pairs[pair * 8 + at.NEXT] = a.counters[at.FREE_PAIR]
    a.counters[at.FREE_PAIR] = pair


@inlined
def write_event(
    event_type: int, reason: int, pub: int, sub: int, time_us: int, distance: float, a: Arrays,
) -> None:
    """Write an event down."""
    event = a.counters[at.EVENTS]
    a.counters[at.EVENTS] = event + 1
    a.out_codes[2 * event] = event_type
    a.out_codes[2 * event + 1] = reason
    a.out_integers[4 * event] = (a.states[pub * 16 + at.GENERATION] << 32) | pub
    a.out_integers[4 * event + 1] = (a.states[sub * 16 + at.GENERATION] << 32) | sub
    a.out_integers[4 * event + 2] = time_us
    a.out_integers[4 * event + 3] = a.counters[at.ROW]
    a.out_numbers[3 * event] = distance
    a.out_numbers[3 * event + 1] = a.numbers[pub * 8 + at.LAT]
    a.out_numbers[3 * event + 2] = a.numbers[pub * 8 + at.LON]


@inlined
def enter(
    pair: int, reason: int, pub: int, sub: int, time_us: int, distance: float, a: Arrays,
) -> None:
    """A pair begins to match."""
    a.pairs[pair * 8 + at.INSIDE] = 1
    a.pairs[pair * 8 + at.DWELLED] = 0
    a.since[pair] = time_us
    if a.clocks[sub * 8 + at.DWELL] >= 0:
        due_us = time_us + a.clocks[sub * 8 + at.DWELL]
        a.counters[at.NEXT_DWELL_US] = min(a.counters[at.NEXT_DWELL_US], due_us)
    a.counters[at.ALIVE_PAIRS] += 1
    write_event(_ENTER, reason, pub, sub, time_us, distance, a)


@inlined
def judge_pairs(slot: int, operation: int, reason: int, time_us: int, stamp: int, a: Arrays) -> int:
    """Update an entity's pairs; returns how many do not match, or −1 if a verdict is wanted."""
    side = 0 if a.states[slot * 16 + at.KIND] == at.PUBLICATION else 1
    false_candidates = 0
    pair = a.states[slot * 16 + at.HEAD]
    while pair >= 0:
        following = a.pairs[pair * 8 + at.NEXT + side]
        other = a.pairs[pair * 8 + at.MEMBER + 1 - side]
        pub, sub = (slot, other) if side == 0 else (other, slot)
        distance = distance_m(pub, sub, a)
        reach = reach_m(pub, sub, a)
        goes_on = operation < at.REMOVE
        if operation == at.JUDGE:
            verdict = verdict_on(sub, pub, a)
            if verdict == 0:
                return -1
            goes_on = verdict == 2
        if a.pairs[pair * 8 + at.INSIDE]:
            if goes_on and distance <= reach + slack_m(pub, sub, a):
                if operation == at.MOVE and a.states[sub * 16 + at.WANTS] & at.WANTS_INSIDE:
                    write_event(_INSIDE, reason, pub, sub, time_us, distance, a)
            else:
                a.pairs[pair * 8 + at.INSIDE] = 0
                a.counters[at.ALIVE_PAIRS] -= 1
                if operation != at.REMOVE_SILENTLY:
                    write_event(_EXIT, reason, pub, sub, time_us, distance, a)
        elif goes_on and distance <= reach:
            enter(pair, reason, pub, sub, time_us, distance, a)
        if a.pairs[pair * 8 + at.INSIDE] == 0:
            false_candidates += 1
            if a.counters[at.LOOKS_AROUND]:
                goes_on = goes_on and not out_of_reach(slot, other, a)
            if not goes_on:
                remove_pair(pair, a)
        if a.counters[at.LOOKS_AROUND]:
            a.clocks[other * 8 + at.SEEN] = stamp  # a removed pair need not be found again
        pair = following
    return false_candidates
