"""The state of congestion as bytes, and back."""

from __future__ import annotations

from dataclasses import astuple, fields
from operator import attrgetter
from typing import Any

from mercury.detection.congestion import Congestion, CongestionCounters
from mercury.detection.jams import Jam
from mercury.detection.slowdown import CellSpeed, CongestionRule, Slowdown
from mercury.detection.snapshot import pack, unpack
from mercury.model.errors import SnapshotError

_MAGIC = b"MJAM"
_values = attrgetter(*(field.name for field in fields(Slowdown)))  # astuple copies deeply


def snapshot_congestion(state: Congestion) -> bytes:
    """All state that decisions depend on, exactly."""
    document = {
        "cell_m": state.rule.cell_m,
        "frontier_us": state.watermark_us,
        "judged_us": state.judged_us,
        "counters": astuple(state.counters),
        "waiting": state.waiting,
        "cells": [(*key, *_values(cell)) for key, cell in state.cells.items()],
        "jams": [_jam_to_json(jam) for jam in state.jams],
    }
    return pack(_MAGIC, document)


def restore_congestion(rule: CongestionRule, data: bytes) -> Congestion:
    """Restore the state, under a rule with the same cells, or raise SnapshotError."""

    def read(document: dict[str, Any]) -> Congestion:
        if document["cell_m"] != rule.cell_m:
            raise SnapshotError(
                f"the snapshot is of cells of {document['cell_m']:g} m, not {rule.cell_m:g} m"
            )
        state = Congestion(rule)
        state.watermark_us, state.judged_us = document["frontier_us"], document["judged_us"]
        state.counters = CongestionCounters(*document["counters"])
        state.waiting = [CellSpeed(*row) for row in document["waiting"]]
        for cell, sector, *rest in document["cells"]:
            state.cells[cell, sector] = Slowdown(*rest)
        state.jams = [_jam_from_json(**fields) for fields in document["jams"]]
        if any(key not in state.cells for jam in state.jams for key in jam.keys):
            raise SnapshotError("the snapshot is damaged: a jam has a cell that is not there")
        return state

    return unpack(_MAGIC, data, read)


def _jam_to_json(jam: Jam) -> dict[str, Any]:
    return {
        "id": jam.id,
        "since_us": jam.since_us,
        "keys": sorted(jam.keys),
        "alerted": jam.alerted,
        "until_us": jam.until_us,
        "alerted_cells": sorted(jam.alerted_cells),
    }


def _jam_from_json(id: str, keys: list[Any], alerted_cells: list[int], **numbers: int) -> Jam:
    own = frozenset((cell, sector) for cell, sector in keys)
    cells = frozenset(alerted_cells)
    return Jam(id=bytes.fromhex(id), keys=own, alerted_cells=cells, **numbers)
