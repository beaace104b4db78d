"""Cells of the right size for each topic, by how much was looked at in them.

Small cells are many, most of them empty; large ones hold many that are too far away. What fits
depends on how dense a topic is and how wide its scopes are, and both change during the day.
"""

from __future__ import annotations

import numpy as np

from mercury.matching import layout as at
from mercury.matching.cells import COARSEST, cell_m
from mercury.matching.store import Store

_FEWEST_QUERIES = 256  # before it is worth a thought
_CROWDED = 20.0  # entities compared in a query
_MANY_CELLS = 30.0  # cells opened in a query


def fit(store: Store, used: int) -> int:
    """Change the cells of at most one topic; returns how many were."""
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
            store.resettle(topic, used)
            return 1
    return 0


def _for_publications(level: int, look: list[int]) -> int:
    queries = max(look[at.SUB_QUERIES], 1)
    compared, cells = look[at.SUB_SCANNED] / queries, look[at.SUB_CELLS] / queries
    if compared > _CROWDED and compared > 4.0 * cells and level > 0:
        return level - 1
    if cells > _MANY_CELLS and cells > 2.0 * compared and level < COARSEST:
        return level + 1
    return level


def _for_subscriptions(store: Store, topic: int, level: int, look: list[int], used: int) -> int:
    compared = look[at.PUB_SCANNED] / max(look[at.PUB_QUERIES], 1)
    states = store.states.reshape(-1, at.STATES)[:used]
    mine = (states[:, at.TOPIC] == topic) & (states[:, at.KIND] >= at.CIRCLE)
    radius_m = store.numbers[at.RADIUS :: at.NUMBERS][:used][mine]
    if not len(radius_m):
        return level
    typical_m = float(np.median(radius_m))
    if compared > _CROWDED and level > 0 and cell_m(level - 1) >= 1.5 * typical_m:
        return level - 1
    # Scopes wider than the cells stand on further levels, and each level is looked at.
    if compared < 2.0 and level < COARSEST and cell_m(level) < 1.5 * typical_m:
        return level + 1
    return level
