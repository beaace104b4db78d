"""Reference positions and skins: how an entity avoids a search at every update.

At its reference position an entity notes all candidates: everyone it can meet while both stay
within their skins (Verlet's neighbour lists). Until it leaves its skin it looks only at those. A
skin that is too large has many false candidates, one that is too small ends soon: the next is
chosen by the cost of the last.
"""

from __future__ import annotations

import math

from mercury.geo.distance import DEGREE_M
from mercury.matching import layout as at
from mercury.matching.compiling import inlined
from mercury.matching.layout import Arrays

PARTS = 256.0  # of a metre, in which reference positions and skins are whole numbers
_LEAST = 4  # more than a reference position is moved by rounding
_FEW, _MANY = 6, 12  # checks of false candidates that cost about as much as a search
_CELL_SHARE = 1.0 / 8.0  # of a cell's height: the most skin
ROUNDING_M = 0.02  # no less than two reference positions and a position may be off


@inlined
def size_m(slot: int, a: Arrays) -> float:
    """How far from its position an entity's scope goes, at most."""
    if a.states[slot * 16 + at.KIND] == at.POLYGON:
        return a.numbers[slot * 8 + at.RADIUS] * 1.001 + 1.0
    return a.numbers[slot * 8 + at.RADIUS]


@inlined
def skin_m(slot: int, a: Arrays) -> float:
    return a.clocks[slot * 8 + at.SKIN] * (1.0 / PARTS)


@inlined
def coming_skin(slot: int, a: Arrays) -> int:
    """The skin of an entity at its next reference position, in parts of a metre."""
    return max(a.clocks[slot * 8 + at.NEXT_SKIN], _LEAST)


@inlined
def strayed_squared(slot: int, x: float, y: float, z: float, a: Arrays) -> float:
    """How far a position is from an entity's reference position, in square metres."""
    dx = x - a.states[slot * 16 + at.REFERENCE] * (1.0 / PARTS)
    dy = y - a.states[slot * 16 + at.REFERENCE + 1] * (1.0 / PARTS)
    dz = z - a.states[slot * 16 + at.REFERENCE + 2] * (1.0 / PARTS)
    return dx * dx + dy * dy + dz * dz


@inlined
def set_reference(slot: int, a: Arrays) -> None:
    """Set an entity's reference position to its position."""
    for axis in range(3):
        parts = math.floor(a.numbers[slot * 8 + at.X + axis] * PARTS + 0.5)
        a.states[slot * 16 + at.REFERENCE + axis] = int(parts)
    a.clocks[slot * 8 + at.SKIN] = coming_skin(slot, a)
    a.states[slot * 16 + at.STAYED] = 0


@inlined
def pull_in(slot: int, level: int, a: Arrays) -> None:
    """Limit an entity's skin to what a level allows; no candidates are noted."""
    x, y, z = a.numbers[slot * 8 + at.X], a.numbers[slot * 8 + at.Y], a.numbers[slot * 8 + at.Z]
    left = skin_m(slot, a) - math.sqrt(strayed_squared(slot, x, y, z, a)) - ROUNDING_M
    most = most_skin(level)
    a.clocks[slot * 8 + at.NEXT_SKIN] = min(a.clocks[slot * 8 + at.NEXT_SKIN], int(most))
    set_reference(slot, a)
    a.clocks[slot * 8 + at.SKIN] = int(min(max(left * PARTS, 0.0), most))


@inlined
def out_of_reach(slot: int, other: int, a: Arrays) -> bool:
    """Whether two cannot meet before one of them has a new reference position."""
    limit = size_m(slot, a) + size_m(other, a) + ROUNDING_M
    limit += skin_m(slot, a) + skin_m(other, a)
    x = a.states[slot * 16 + at.REFERENCE] * (1.0 / PARTS)
    y = a.states[slot * 16 + at.REFERENCE + 1] * (1.0 / PARTS)
    z = a.states[slot * 16 + at.REFERENCE + 2] * (1.0 / PARTS)
    return strayed_squared(other, x, y, z, a) > limit * limit


@inlined
def most_skin(level: int) -> float:
    """The largest skin, in parts of a metre: more would widen all searches."""
    return DEGREE_M / (4096 >> level) * _CELL_SHARE * PARTS


@inlined
def next_skin(
    slot: int,
    skin: int,
    strayed_m: float,
    updates: int,
    false_candidates: int,
    level: int,
) -> int:
    """The skin of the next reference position, by the cost of the one before."""
    most = most_skin(level)
    step = strayed_m / max(updates, 1) * PARTS
    if 2.0 * step > most:
        return _LEAST  # it jumps: no skin would be enough
    wanted = float(skin)
    if false_candidates * updates < _FEW:
        # By different factors, or entities that start together would always search together.
        wanted = max((1.125 + (slot & 15) * 0.03125) * wanted, 4.0 * step)
    elif false_candidates * updates > _MANY:
        wanted = 0.7 * wanted
    return int(min(max(wanted, float(_LEAST)), most))
