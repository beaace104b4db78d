"""How the kernel's arrays are laid out: a row of numbers for each entity, pair and record."""

from __future__ import annotations

from typing import Any, NamedTuple

SLOT_MASK = 0xFFFF_FFFF  # the slot of a reference; the upper bits are the slot's generation

# Entities have a line of cache in each of three arrays, at `slot * 8` or `slot * 16`.
X, Y, Z, RADIUS, SLACK, ACCURACY, LAT, LON = range(8)  # numbers: metres and degrees
TIME, EXPIRES, TTL, DWELL = range(4)  # clocks: microseconds,
SEEN, KEY, SKIN, NEXT_SKIN = range(4, 8)  # a stamp and a key, and lengths in parts of a metre
KIND, TOPIC, CONTENT, HEAD, RECORD, LEVEL, WANTS, DEGREE, EDGE, EDGES, GENERATION = range(11)
REFERENCE, STAYED = 11, 14  # states, too: three parts of a metre, and how many updates ago that was

NUMBERS, CLOCKS, STATES = 8, 8, 16  # the lengths of those rows

FREE, PUBLICATION, CIRCLE, POLYGON = range(4)  # KIND
WANTS_INSIDE = 1  # WANTS

# A pair is in two lists: that of its publication and that of its subscription. It matches while it
# is inside; before and after it is one that may soon match.
MEMBER, NEXT, PREVIOUS = 0, 2, 4  # + side
DWELLED, INSIDE = 6, 7
PAIR = 8

# A chunk of a cell: eight rows of four numbers. The first says which chunk follows and how many
# records there are; a record is x, y, z, then radius and slot in the halves of the fourth number.
CHUNK_ROWS = 8
ROW_NUMBERS = 4
MOST_RECORDS = CHUNK_ROWS - 1
FOLLOWING, COUNT = 0, 1
SINGLE_RADIUS, INTEGER_SLOT = 6, 7


class Arrays(NamedTuple):
    """All arrays of the kernel, which travel through its functions together."""

    counters: Any
    numbers: Any
    clocks: Any
    states: Any
    table: Any  # of cells: key and first chunk
    records: Any  # three views of the same chunks
    singles: Any
    integers: Any
    pairs: Any
    since: Any  # for each pair
    edges: Any  # of polygons
    verdicts: Any
    columns: Any  # of cells in a row, for each level and degree
    levels: Any  # for each topic: of publications, of subscriptions
    widest: Any
    inhabited: Any  # for each topic and side: which levels, as bits
    looks: Any
    prefetched: Any
    out_codes: Any
    out_integers: Any
    out_numbers: Any


# Counters that the kernel and its host share.
(
    ROW,  # the update to go on with
    PHASE,  # of that update: has not begun, has moved, has judged its pairs
    EVENTS,
    STAMP,
    FREE_CHUNK,
    CHUNKS,
    FREE_PAIR,
    PAIRS,
    USED,  # entries of the table of cells
    FILTER,  # of which a verdict is wanted
    CONTENT_ASKED,
    LATE,
    UNKNOWN,
    NOWHERE,
    ALIVE_PAIRS,
    UPDATES,
    WIDENED,  # how often a level's widest scope grew, or its first entity came
    COMPARED,
    OPENED,
    NEXT_DWELL_US,  # no pair has lasted long enough before this time
    LOOKS_AROUND,  # whether the update must search, because it has a new reference position
) = range(21)
COUNTERS = 24

NEVER_US = 1 << 62

# What the kernel returns: it is done, or what it needs before it can go on.
DONE, MORE_EVENTS, MORE_CHUNKS, MORE_PAIRS, MORE_TABLE, A_VERDICT = range(6)

# PHASE
NOT_BEGUN, MOVED, JUDGED = range(3)

# Operations.
MOVE, JUDGE, REMOVE, REMOVE_SILENTLY = range(4)

# Per topic: how much was looked at, so that cells of the right size are chosen.
PUB_QUERIES, PUB_SCANNED, SUB_QUERIES, SUB_SCANNED, SUB_CELLS = range(5)
LOOKS = 8
