"""Congestion from telemetry: what is a jam, who is told, and what is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from detection.observations import ORIGINS, S
from detection.traffic import (
    EAST,
    NORTH,
    NORTH_EAST,
    RULE,
    USUAL_MPS,
    WEST,
    check_congestion,
    drive,
    learned,
    row_of_cells,
    usual,
    window,
)

from mercury.detection import Congestion, CongestionRule
from mercury.detection.jams import components, extent_of, heading_of
from mercury.geo import contains_point, destination
from mercury.geo.grid import Grid
from mercury.model.area import Area, Circle, Corridor
from mercury.model.errors import DetectionError

ROAD = row_of_cells(8)
EASTBOUND = [(cell, EAST) for cell in ROAD]
WESTBOUND = [(cell, WEST) for cell in ROAD]


def hears(area: Area, cell: int, heading_deg: float) -> bool:
    """Whether a vehicle in the middle of this cell, driving so, is addressed."""
    lat, lon = Grid(RULE.cell_m).centre_of(cell)
    sector = area.heading
    assert sector is not None
    off_deg = abs(math.remainder(heading_deg - sector.center_deg, 360.0))
    inside = contains_point(Area(area.shape), float(lat), float(lon))
    return inside and off_deg <= sector.half_width_deg


def jammed(cells: list[int]) -> Callable[[int, tuple[int, int]], float]:
    """Slow in these cells, eastbound; usual elsewhere."""

    def speed(number: int, key: tuple[int, int]) -> float:
        return 4.0 if key[0] in cells and key[1] == EAST else USUAL_MPS

    return speed


def test_a_jam_is_told_once_with_its_cells_and_its_direction() -> None:
    core = learned(EASTBOUND + WESTBOUND)
    verdicts = drive(core, range(60, 80), EASTBOUND + WESTBOUND, jammed(ROAD[3:6]))
    (verdict,) = verdicts
    assert verdict.kind == "congestion"
    assert verdict.since_us == 600 * S
    assert verdict.at_us == 720 * S  # slow for two minutes
    assert verdict.until_us == verdict.at_us + 300 * S
    assert verdict.values["cells"] == 3
    assert verdict.values["speed_mps"] == pytest.approx(4.0)
    assert verdict.values["usual_mps"] == pytest.approx(USUAL_MPS)
    assert verdict.count == 15
    assert isinstance(verdict.area.shape, Corridor)
    for cell in ROAD[1:6]:  # the jam, and 400 m towards it
        assert hears(verdict.area, cell, 90.0)
        assert not hears(verdict.area, cell, 270.0)  # the other carriageway
    assert not hears(verdict.area, ROAD[7], 90.0)  # beyond the jam nobody need know
    assert len(core.conditions()) == 1


def test_a_red_light_is_no_jam() -> None:
    """Ninety seconds of red, thirty of green, for an hour."""
    core = learned(EASTBOUND)

    def red_and_green(number: int, key: tuple[int, int]) -> float:
        return 1.0 if key[0] == ROAD[4] and number % 12 < 9 else USUAL_MPS

    assert drive(core, range(60, 420), EASTBOUND, red_and_green) == []
    assert core.conditions() == []
    # And the red phases have not become usual.
    assert core.cells[ROAD[4], EAST].usual_mps == pytest.approx(USUAL_MPS)


def test_a_jam_does_not_become_usual_while_it_is_on() -> None:
    core = learned(EASTBOUND)
    drive(core, range(60, 60 + 360 * 6), EASTBOUND, jammed(ROAD[:1]))  # six hours
    assert core.cells[EASTBOUND[0]].usual_mps == pytest.approx(USUAL_MPS)
    assert core.cells[EASTBOUND[0]].on


def test_what_has_been_so_for_a_day_is_usual() -> None:
    core = learned(EASTBOUND[:1], replace(RULE, relearn_s=3600.0))
    drive(core, range(60, 60 + 360), EASTBOUND[:1], jammed(ROAD[:1]))
    assert core.conditions() == []
    assert drive(core, range(420, 600), EASTBOUND[:1], jammed(ROAD[:1])) == []
    assert core.cells[EASTBOUND[0]].usual_mps == pytest.approx(4.0)


def test_traffic_that_slows_down_little_by_little_is_found() -> None:
    core = learned(EASTBOUND[:1])

    def fading(number: int, key: tuple[int, int]) -> float:
        return max(USUAL_MPS * (1.0 - (number - 60) / 180.0), 2.0)  # over half an hour

    assert len(drive(core, range(60, 260), EASTBOUND[:1], fading)) >= 1


def test_middling_speeds_interrupt_both_ways() -> None:
    core = learned(EASTBOUND[:1])
    slow, middling, free = 9.0, 12.0, 15.0  # of 20, with shares 0.5 and 0.7

    def speeds(*values: float) -> list[object]:
        nonlocal next_window
        windows = range(next_window, next_window + len(values))
        next_window += len(values)
        return list(drive(core, windows, EASTBOUND[:1], lambda n, key: values[n - windows[0]]))

    next_window = 60
    assert speeds(*[slow] * 11, middling, *[slow] * 11) == []
    assert len(speeds(slow)) == 1
    speeds(*[free] * 5, middling, *[free] * 5)
    assert len(core.conditions()) == 1
    speeds(free)
    assert core.conditions() == []


def test_too_few_vehicles_neither_confirm_nor_clear() -> None:
    core = learned(EASTBOUND[:1])
    drive(core, range(60, 66), EASTBOUND[:1], jammed(ROAD))
    assert drive(core, range(66, 76), EASTBOUND[:1], usual, vehicles=2) == []
    assert drive(core, range(76, 81), EASTBOUND[:1], jammed(ROAD)) == []
    assert len(drive(core, range(81, 82), EASTBOUND[:1], jammed(ROAD))) == 1  # twelve slow ones
    drive(core, range(82, 92), EASTBOUND[:1], usual, vehicles=2)
    assert len(core.conditions()) == 1
    assert core.counters.sparse == 20


def test_a_jam_of_which_nothing_is_heard_ends() -> None:
    core = learned(EASTBOUND)
    drive(core, range(60, 72), EASTBOUND, jammed(ROAD[:1]))
    assert len(core.conditions()) == 1
    others = EASTBOUND[1:]
    drive(core, range(72, 101), others, usual)
    assert len(core.conditions()) == 1
    drive(core, range(101, 102), others, usual)  # five minutes
    assert core.conditions() == []
    assert (core.counters.begun, core.counters.ended) == (1, 1)
    # It begins anew, and must again be slow for two minutes.
    assert drive(core, range(102, 113), EASTBOUND, jammed(ROAD[:1])) == []
    assert len(drive(core, range(113, 114), EASTBOUND, jammed(ROAD[:1]))) == 1


def test_silence_everywhere_ends_the_condition_too() -> None:
    core = learned(EASTBOUND[:1])
    drive(core, range(60, 72), EASTBOUND[:1], jammed(ROAD))
    core.advance((720 + 299) * S)
    assert len(core.conditions()) == 1
    core.advance((720 + 300) * S)
    assert core.conditions() == []
    check_congestion(core)


def test_it_is_told_again_when_the_alert_has_lapsed_or_the_jam_has_grown() -> None:
    core = learned(EASTBOUND)
    first = drive(core, range(60, 72), EASTBOUND, jammed(ROAD[6:]))
    assert len(first) == 1
    lapsed = drive(core, range(72, 102), EASTBOUND, jammed(ROAD[6:]))
    assert [verdict.at_us for verdict in lapsed] == [first[0].until_us]
    # One cell more is 200 m: not yet; two are.
    grown = drive(core, range(102, 114), EASTBOUND, jammed(ROAD[5:]))
    assert grown == []
    grown = drive(core, range(114, 126), EASTBOUND, jammed(ROAD[4:]))
    assert len(grown) == 1
    assert grown[0].values["cells"] == 4
    every = first + lapsed + grown
    assert len({verdict.incident_id for verdict in every}) == 1
    assert len({verdict.alert_id for verdict in every}) == 3


def test_it_is_not_told_again_while_nobody_says_that_it_is_still_there() -> None:
    core = learned(EASTBOUND, replace(RULE, validity_s=60.0))
    assert len(drive(core, range(60, 72), EASTBOUND, jammed(ROAD[:1]))) == 1
    assert drive(core, range(72, 90), EASTBOUND[1:], usual) == []  # the alert lapses at 78
    assert len(core.conditions()) == 1
    assert len(drive(core, range(90, 91), EASTBOUND, jammed(ROAD[:1]))) == 1


def test_what_was_slow_before_a_long_silence_does_not_count() -> None:
    core = learned(EASTBOUND[:1])
    assert drive(core, range(60, 71), EASTBOUND[:1], jammed(ROAD)) == []
    assert drive(core, range(101, 112), EASTBOUND[:1], jammed(ROAD)) == []
    assert len(drive(core, range(112, 113), EASTBOUND[:1], jammed(ROAD))) == 1


def test_two_jams_that_meet_go_on_as_the_older() -> None:
    core = learned(EASTBOUND)
    (first,) = drive(core, range(60, 75), EASTBOUND, jammed(ROAD[:2]))
    second = drive(core, range(75, 87), EASTBOUND, jammed(ROAD[:2] + ROAD[5:7]))
    assert len(second) == 1
    assert len(core.jams) == 2
    drive(core, range(87, 99), EASTBOUND, jammed(ROAD[:7]))
    assert [jam.id for jam in core.jams] == [first.incident_id]
    assert core.counters.merged == 1


def test_a_part_that_falls_off_has_been_told_of() -> None:
    core = learned(EASTBOUND)
    (first,) = drive(core, range(60, 75), EASTBOUND, jammed(ROAD[:7]))
    verdicts = drive(core, range(75, 85), EASTBOUND, jammed(ROAD[:2] + ROAD[4:7]))
    assert verdicts == []
    assert len(core.jams) == 2
    largest = max(core.jams, key=lambda jam: len(jam.keys))
    assert largest.id == first.incident_id


def test_opposite_jams_are_two() -> None:
    core = learned(EASTBOUND + WESTBOUND)
    both = drive(core, range(60, 75), EASTBOUND + WESTBOUND, lambda n, key: 2.0)
    assert len(both) == 2
    for cell in ROAD[2:6]:
        assert [hears(v.area, cell, 90.0) for v in both].count(True) == 1
        assert [hears(v.area, cell, 270.0) for v in both].count(True) == 1


def test_a_car_park_is_never_jammed() -> None:
    core = Congestion(RULE)
    drive(core, range(60), EASTBOUND[:1], lambda n, key: 2.0)
    assert drive(core, range(60, 200), EASTBOUND[:1], lambda n, key: 0.2) == []


def test_an_unknown_place_is_learned_first() -> None:
    core = Congestion(RULE)
    assert drive(core, range(30), EASTBOUND[:1], lambda n, key: 20.0 if n < 20 else 1.0) == []
    assert core.counters.learning == 30


@pytest.mark.parametrize("origin", ORIGINS[:3] + ORIGINS[5:])
def test_one_jam_across_any_border(origin: tuple[float, float]) -> None:
    lat, lon = destination(*origin, 270.0, 500.0)
    road = [(cell, EAST) for cell in row_of_cells(6, (float(lat), float(lon)))]
    core = learned(road)
    (verdict,) = drive(core, range(60, 75), road, lambda n, key: 3.0)
    assert verdict.values["cells"] == 6
    for cell, _ in road:
        assert hears(verdict.area, cell, 90.0)


def test_late_double_and_impossible_rows_are_counted_only() -> None:
    core = learned(EASTBOUND[:1])
    good = window(60, {EASTBOUND[0]: 20.0})[0]
    core.add([good, good])
    core.advance(610 * S)
    core.add([good])
    broken = [
        good._replace(window_us=good.window_us + 1), good._replace(window_us=-1),
        good._replace(cell=2**62), good._replace(cell=-1), good._replace(sector=8),
        good._replace(speed_mps=math.nan), good._replace(speed_mps=-1.0),
        good._replace(vehicles=-1), good._replace(window_us=2**62),
    ]  # fmt: skip
    core.add(broken)
    counters = core.counters
    assert (counters.duplicate, counters.late, counters.malformed) == (1, 1, len(broken))
    check_congestion(core)


def test_memory_is_bounded() -> None:
    core = Congestion(RULE, max_cells=3)
    for number in range(5):
        core.add(window(number, dict.fromkeys(EASTBOUND[number : number + 2], 20.0)))
        check_congestion(core)
    assert len(core.cells) == 3
    assert core.counters.dropped > 0


def test_a_bend_is_one_jam_but_a_turn_back_is_not() -> None:
    grid = Grid(RULE.cell_m)
    cells = row_of_cells(5)
    bend = [(cells[0], NORTH), (cells[1], NORTH), (cells[2], NORTH_EAST), (cells[3], EAST)]
    assert len(components(bend, grid)) == 1
    heading = heading_of(bend)
    assert (heading.center_deg, heading.half_width_deg) == (45.0, 90.0)
    back = [*bend, (cells[4], EAST + 1), (cells[4], EAST + 2)]
    assert len(components(back, grid)) == 2
    assert len(components([(cells[0], 7), (cells[1], 0)], grid)) == 1  # over north
    assert heading_of([(cells[0], 7), (cells[1], 0)]).center_deg == 337.5
    assert len(components([(cells[0], 0), (cells[0], 4)], grid)) == 2
    assert len(components([(cells[0], 0), (cells[2], 0)], grid)) == 2


def test_one_cell_alone_is_a_circle() -> None:
    extent = extent_of(frozenset(EASTBOUND[:1]), Grid(RULE.cell_m), approach_m=0.0)
    assert isinstance(extent.shape, Circle)
    assert extent.radius_m == pytest.approx(RULE.cell_m * math.sqrt(0.5))


def test_a_long_jam_still_fits_a_packet() -> None:
    cells = row_of_cells(200)
    extent = extent_of(frozenset((c, EAST) for c in cells), Grid(RULE.cell_m), approach_m=500.0)
    assert isinstance(extent.shape, Corridor)
    assert len(extent.shape.line) <= 25
    lats, lons = Grid(RULE.cell_m).centre_of(cells)
    area = Area(extent.shape)
    assert all(
        contains_point(area, a, b) for a, b in zip(lats.tolist(), lons.tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slow_share": 0.8}, "slow_share 0.8 is above free_share 0.7"),
        ({"cell_m": 1.0}, "cell_m 1 is not between 10 and 100000"),
        ({"min_vehicles": 0}, "min_vehicles 0 is not between 1 and 1e+06"),
        ({"window_s": 0.0}, "window_s 0 is not between 0.001 and 3.16224e+08"),
    ],
)
def test_rules_that_cannot_be_are_refused(changes: dict[str, float], sentence: str) -> None:
    with pytest.raises(DetectionError) as caught:
        CongestionRule(**changes)  # type: ignore[arg-type]
    assert str(caught.value) == sentence
