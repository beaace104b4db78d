"""Rows of traffic to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from detection.sightings import CITY, at

from mercury.detection import CellSpeed, Congestion, CongestionRule, Grid, Verdict

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
        core.validate()
    return verdicts


def usual(number: int, key: tuple[int, int]) -> float:
    return USUAL_MPS


def learned(keys: Iterable[tuple[int, int]], rule: CongestionRule = RULE) -> Congestion:
    """A core that knows the usual speed; the next window is number 60."""
    core = Congestion(rule)
    assert drive(core, range(60), keys, usual) == []
    return core
