"""What always holds of the entities that an adapter's clients declared."""

from __future__ import annotations

import numpy as np

from mercury.adapter.entities import Entities


def check_entities(entities: Entities) -> None:
    """Check that the entities are found by key, by row and by session alike."""
    all_of_them = [entity for entity in entities._at if entity is not None]
    assert len(all_of_them) == len(entities) == sum(map(len, entities._of.values()))
    keys = np.array([entity.key for entity in all_of_them], np.uint64)
    assert entities.find(keys).tolist() == [entity.row for entity in all_of_them]
    slots = np.unique(entities.slot[[entity.row for entity in all_of_them]]).astype(np.int64)
    index, rows = entities.moving(slots)
    assert np.array_equal(slots[index], entities.slot[rows])
    assert len(set(rows.tolist())) == len(rows)
