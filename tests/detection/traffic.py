"""Rows of traffic to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from detection.observations import CITY, at

from mercury.detection import CellSpeed, Congestion, CongestionRule, Verdict
from mercury.geo.grid import Grid

RULE = CongestionRule()
GRID = Grid(RULE.cell_m)
EAST, WEST, NORTH, NORTH_EAST = 2, 6, 0, 1
USUAL_MPS = 20.0


def row_of_cells(length: int, origin: tuple[float, float] = CITY, grid: Grid = GRID) -> list[int]:
    """The cells along a straight road to the east."""
    step_m = grid.cell_m * 0.5
    found: list[int] = []
    for step in range(100 * length):
        point = at(origin, 0.0, step * step_m)
        cell = int(grid.cell_of(*point))
        if cell not in found:
            found.append(cell)
        if len(found) == length:
            break
    return found


def window(number: int, speeds: dict[tuple[int, int], float], vehicles: int = 5) -> list[CellSpeed]:
    start_us = number * RULE.window_us
    return [CellSpeed(start_us, *key, vehicles, speed) for key, speed in speeds.items()]


def drive(
    core: Congestion,
    windows: Iterable[int],
    keys: Iterable[tuple[int, int]],
    speed: Callable[[int, tuple[int, int]], float | None],
    vehicles: int = 5,
) -> list[Verdict]:
    """Let traffic go on for these windows; None where nobody drives."""
    keys = list(keys)
    verdicts = []
    for number in windows:
        speeds = {key: mps for key in keys if (mps := speed(number, key)) is not None}
        verdicts += core.add(window(number, speeds, vehicles))
        verdicts += core.advance((number + 1) * RULE.window_us)
        check_congestion(core)
    return verdicts


def check_congestion(core: Congestion) -> None:
    """Check what must always hold."""
    on = {key for key, cell in core.cells.items() if cell.on}
    jammed = [key for jam in core.jams for key in jam.keys]
    assert len(jammed) == len(set(jammed)), "a cell in two jams"
    assert set(jammed) == on
    assert len({jam.id for jam in core.jams}) == len(core.jams)
    assert core.jams == sorted(core.jams, key=lambda jam: jam.rank)
    assert len(core.cells) <= core.max_cells
    assert all(row.window_us >= core.judged_us for row in core.waiting)
    for cell in core.cells.values():
        assert cell.slow_for_us == 0 or cell.free_for_us == 0
        assert 0 <= cell.heard_us <= core.watermark_us
    c = core.counters
    assert c.begun - c.merged - c.ended == len(core.jams)
    heard = c.sparse + c.free + c.middling + c.slow + c.learning
    assert c.observed == heard + c.malformed + c.late + c.duplicate + len(core.waiting)


def usual(number: int, key: tuple[int, int]) -> float:
    return USUAL_MPS


def learned(keys: Iterable[tuple[int, int]], rule: CongestionRule = RULE) -> Congestion:
    """A core that knows the usual speed; the next window is number 60."""
    core = Congestion(rule)
    assert drive(core, range(60), keys, usual) == []
    return core
