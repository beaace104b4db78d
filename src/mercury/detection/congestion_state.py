"""The state of congestion as bytes, and back."""

from __future__ import annotations

from dataclasses import fields
from itertools import islice

from mercury.detection.congestion import MAX_CELLS, CellSpeed, Congestion, CongestionCounters
from mercury.detection.jams import Jam, Key
from mercury.detection.slowdown import CongestionRule, Slowdown
from mercury.detection.snapshot import Packer, Unpacker
from mercury.model.errors import SnapshotError

_MAGIC = b"MJAM"
_VERSION = 1
_FLOATS = ("usual_mps", "speed_mps")
_INTS = tuple(field.name for field in fields(Slowdown) if field.name not in _FLOATS)


def snapshot_congestion(state: Congestion) -> bytes:
    """Everything that a decision can depend on, to the last digit."""
    packer = Packer(_MAGIC, _VERSION)
    packer.floats([state.rule.cell_m])
    packer.ints([state.frontier_us, state.judged_us])
    packer.ints(state.counters.values())
    packer.ints([number for row in state.waiting for number in row[:4]])
    packer.floats([row.speed_mps for row in state.waiting])

    packer.ints([number for key in state.cells for number in key])
    for name in _INTS:
        packer.ints([getattr(cell, name) for cell in state.cells.values()])
    for name in _FLOATS:
        packer.floats([getattr(cell, name) for cell in state.cells.values()])

    jams = state.jams
    packer.blobs([jam.id for jam in jams])
    packer.ints(
        [
            n
            for j in jams
            for n in (j.since_us, j.alerted, j.until_us, len(j.keys), len(j.alerted_cells))
        ]
    )
    packer.ints([number for jam in jams for key in sorted(jam.keys) for number in key])
    packer.ints([cell for jam in jams for cell in sorted(jam.alerted_cells)])
    return packer.finish()


def restore_congestion(
    rule: CongestionRule, data: bytes, *, max_cells: int = MAX_CELLS
) -> Congestion:
    """The state as it was, to go on under a rule of the same cells, or SnapshotError."""
    state = Congestion(rule, max_cells=max_cells)
    unpacker = Unpacker(data, _MAGIC, _VERSION)
    (cell_m,) = unpacker.floats(1)
    if cell_m != rule.cell_m:
        raise SnapshotError(f"the snapshot is of cells of {cell_m:g} m, not {rule.cell_m:g} m")
    state.frontier_us, state.judged_us = unpacker.ints(2)
    state.counters = CongestionCounters(*unpacker.ints(len(fields(CongestionCounters))))

    numbers = unpacker.ints()
    if len(numbers) % 4:
        raise SnapshotError("the snapshot is damaged: a row is not whole")
    speeds = unpacker.floats(len(numbers) // 4)
    windows_us, cells, sectors, vehicles = (numbers[i::4] for i in range(4))
    rows = zip(windows_us, cells, sectors, vehicles, speeds, strict=True)
    state.waiting = [CellSpeed(*row) for row in rows]
    keys = _keys(unpacker.ints())
    columns: dict[str, list[int] | list[float]] = {n: unpacker.ints(len(keys)) for n in _INTS}
    columns |= {name: unpacker.floats(len(keys)) for name in _FLOATS}
    for i, key in enumerate(keys):
        state.cells[key] = Slowdown(**{name: column[i] for name, column in columns.items()})  # type: ignore[arg-type]
    state.jams = _read_jams(unpacker)
    unpacker.finish()
    if any(key not in state.cells for jam in state.jams for key in jam.keys):
        raise SnapshotError("the snapshot is damaged: a jam has a cell that is not there")
    return state


def _read_jams(unpacker: Unpacker) -> list[Jam]:
    ids = unpacker.blobs()
    numbers = unpacker.ints(5 * len(ids))
    keys = iter(_keys(unpacker.ints(2 * sum(numbers[3::5]))))
    alerted_cells = iter(unpacker.ints(sum(numbers[4::5])))
    jams = []
    for i, id in enumerate(ids):
        since_us, alerted, until_us, size, alerted_size = numbers[5 * i : 5 * i + 5]
        own = frozenset(islice(keys, size))
        jams.append(
            Jam(
                id, since_us, own, alerted, until_us, frozenset(islice(alerted_cells, alerted_size))
            )
        )
    return jams


def _keys(numbers: list[int]) -> list[Key]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))
