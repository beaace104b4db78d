"""Moves pairs from one engine to another: who is inside stays inside, without an event."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.matching import layout as at
from mercury.matching.engine import Engine
from mercury.matching.pairs import link


def partners(engine: Engine, reference: int) -> NDArray[np.int64]:
    """References of the entities that an entity has pairs with, the newest first."""
    store, kind = engine.store, _kind(engine, reference)
    if kind == at.FREE:
        return np.zeros(0, np.int64)
    side = 0 if kind == at.PUBLICATION else 1
    rows = store.pairs.reshape(-1, at.PAIR)[_pairs(engine, reference & at.SLOT_MASK, side)]
    others = rows[rows[:, at.INSIDE] == 1, at.MEMBER + 1 - side].astype(np.int64)
    generations = store.states[others * at.STATES + at.GENERATION].astype(np.int64)
    return np.asarray(generations << 32 | others, np.int64)


def adopt(engine: Engine, publication: int, subscription: int, since_us: int) -> bool:
    """Take over a pair from another engine; False if one of the two is not here.

    Whether it still matches is decided when one of them moves next.
    """
    kinds = _kind(engine, publication), _kind(engine, subscription)
    if kinds[0] != at.PUBLICATION or kinds[1] not in (at.CIRCLE, at.POLYGON):
        return False
    store = engine.store
    for pair in _pairs(engine, publication & at.SLOT_MASK, 0):
        if store.pairs[pair * at.PAIR + at.MEMBER + 1] == subscription & at.SLOT_MASK:
            break
    else:
        pair = _new_pair(engine)
        # As plain Python: a call from here would have it compiled once more.
        plain: Any = link
        for side, member in enumerate((publication, subscription)):
            plain.py_func(pair, member & at.SLOT_MASK, side, store.all_arrays())
    row = store.pairs[pair * at.PAIR : (pair + 1) * at.PAIR]
    if not row[at.INSIDE]:
        row[at.INSIDE], row[at.DWELLED] = 1, 0
        store.since[pair] = since_us
        store.counters[at.ALIVE_PAIRS] += 1
    return True


def _pairs(engine: Engine, slot: int, side: int) -> list[int]:
    """The pairs of an entity, also those that do not match now."""
    found = []
    pair = int(engine.store.states[slot * at.STATES + at.HEAD])
    while pair >= 0:
        found.append(pair)
        pair = int(engine.store.pairs[pair * at.PAIR + at.NEXT + side])
    return found


def _new_pair(engine: Engine) -> int:
    store, counters = engine.store, engine.store.counters
    pair = int(counters[at.FREE_PAIR])
    if pair >= 0:
        counters[at.FREE_PAIR] = store.pairs[pair * at.PAIR + at.NEXT]
        return pair
    pair = int(counters[at.PAIRS])
    if pair == len(store.since):
        store.provide(at.MORE_PAIRS)
    counters[at.PAIRS] += 1
    store.pairs[pair * at.PAIR + at.INSIDE] = 0
    return pair


def _kind(engine: Engine, reference: int) -> int:
    states = engine.store.states.reshape(-1, at.STATES)
    slot = reference & at.SLOT_MASK
    if slot >= len(states) or states[slot, at.GENERATION] != reference >> 32:
        return at.FREE
    return int(states[slot, at.KIND])
