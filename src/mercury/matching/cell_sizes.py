"""Chooses each topic's cell size by how many records its updates look at.

Small cells are many, most of them empty; large ones hold many entities that are too far away. What
fits depends on how dense a topic is and how wide its scopes are, and both change during the day.
"""

from __future__ import annotations

import numpy as np

from mercury.matching import layout as at
from mercury.matching.cells import COARSEST, cell_m
from mercury.matching.store import Store

_FEWEST_QUERIES = 2048  # before a size is changed
_CROWDED = 20.0  # entities compared in a query
_PER_TICK = 500_000  # entities looked at, so that a tick stays short: a few milliseconds
_MANY_CELLS = 30.0  # cells opened in a query


def fit(store: Store, used: int) -> None:
    """Adapt the cell sizes of a few topics."""
    changed = 0
    looks = store.looks.reshape(-1, at.LOOKS)
    for topic in np.flatnonzero(looks[:, (at.PUB_QUERIES, at.SUB_QUERIES)].max(axis=1)).tolist():
        look = looks[topic].copy()
        if max(look[at.PUB_QUERIES], look[at.SUB_QUERIES]) < _FEWEST_QUERIES:
            continue
        looks[topic] = 0
        before = store.levels[2 * topic : 2 * topic + 2].tolist()
        wanted = [
            _for_publications(before[0], look.tolist()),
            _for_subscriptions(store, topic, before[1], look.tolist(), used),
        ]
        if wanted != before:
            store.levels[2 * topic : 2 * topic + 2] = wanted
            store.rebuild_cells(topic, used)
            changed += 1
            if changed * used >= _PER_TICK:
                break


def _for_publications(level: int, look: list[int]) -> int:
    queries = max(look[at.SUB_QUERIES], 1)
    compared, cells = look[at.SUB_SCANNED] / queries, look[at.SUB_CELLS] / queries
    if compared > _CROWDED and compared > 4.0 * cells and level > 0:
        return max(level - (2 if compared > 16.0 * _CROWDED else 1), 0)
    if cells > _MANY_CELLS and cells > 2.0 * compared and level < COARSEST:
        return level + 1
    return level


def _for_subscriptions(store: Store, topic: int, level: int, look: list[int], used: int) -> int:
    compared = look[at.PUB_SCANNED] / max(look[at.PUB_QUERIES], 1)
    if compared > _CROWDED and level > 0:
        return level - 1 if cell_m(level - 1) >= 1.5 * _typical_m(store, topic, used) else level
    # Scopes wider than the cells are on further levels, and each level must be searched.
    entry = 2 * 16 * (2 * topic + 1)
    on_levels = np.count_nonzero(store.widest[entry : entry + 32 : 2])
    if compared < 2.0 and on_levels > 1 and level < COARSEST:
        return level + 1 if cell_m(level) < 1.5 * _typical_m(store, topic, used) else level
    return level


def _typical_m(store: Store, topic: int, used: int) -> float:
    """How wide most scopes of a topic are."""
    states = store.states.reshape(-1, at.STATES)[:used]
    mine = (states[:, at.TOPIC] == topic) & (states[:, at.KIND] >= at.CIRCLE)
    radii_m = store.numbers[at.RADIUS :: at.NUMBERS][:used][mine]
    return float(np.median(radii_m)) if len(radii_m) else 0.0
