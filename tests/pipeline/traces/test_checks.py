"""The checks against a slow twin in plain Python, on generated traces with all kinds of dirt."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.pipeline.traces.checks import checked
from mercury.pipeline.traces.jumps import AGREEING, JumpCheck, TimedPosition, mark_jumps
from mercury.pipeline.traces.schemas import CHECKED, FIX

MAX_SPEED_MPS = 100.0
M_PER_DEG = 111_195.0  # along a meridian, on the mean sphere


class Row(NamedTuple):
    vehicle: str | None
    time_us: int | None
    lat: float | None
    lon: float | None
    speed_mps: float | None
    heading_deg: float | None
    source: str
    block: int
    row: int
    original: str
    problem: str | None


def row(
    number: int,
    vehicle: str | None = "a",
    time_s: float = 0.0,
    lat: float = 1.0,
    lon: float = 1.0,
    problem: str | None = None,
    source: str = "f",
) -> Row:
    return Row(vehicle, round(time_s * 1e6), lat, lon, None, None, source, 0, number, "…", problem)


def judge(spark: SparkSession, rows: list[Row]) -> dict[tuple[str, int, int], tuple[Any, bool]]:
    shuffled = random.Random(1).sample(rows, len(rows))  # tasks come in any order
    found = checked(spark.createDataFrame(shuffled, FIX), MAX_SPEED_MPS).collect()
    assert len(found) == len(rows)
    return {(one.source, one.block, one.row): (one.problem, one.late) for one in found}


def twin(rows: list[Row]) -> dict[tuple[str, int, int], tuple[Any, bool]]:
    """The same, one row after the other."""
    problems: dict[tuple[str, int, int], Any] = {}
    late = dict.fromkeys((one[6:9] for one in rows), False)
    newest: dict[str | None, int] = {}
    unique: dict[tuple[str | None, int], Row] = {}
    for one in sorted(rows, key=lambda one: one[6:9]):
        problem = one.problem
        if problem is None:
            assert one.lat is not None
            assert one.lon is not None
            assert one.time_us is not None
            if not (abs(one.lat) <= 90 and abs(one.lon) <= 180):
                problem = "out-of-range"
            elif one.lat == one.lon == 0:
                problem = "null-island"
            else:
                late[one[6:9]] = newest.get(one.vehicle, -1) > one.time_us
                newest[one.vehicle] = max(newest.get(one.vehicle, -1), one.time_us)
                if (one.vehicle, one.time_us) in unique:
                    problem = "duplicate"
                else:
                    unique[one.vehicle, one.time_us] = one
        problems[one[6:9]] = problem
    believed: dict[str | None, Row] = {}
    doubted: dict[str | None, list[Row]] = {}
    for one in sorted(unique.values(), key=lambda one: (one.vehicle or "", one.time_us or 0)):
        doubts = doubted.setdefault(one.vehicle, [])
        if one.vehicle in believed and not reaches(believed[one.vehicle], one):
            if doubts and not reaches(doubts[-1], one):
                doubts.clear()
            doubts.append(one)
            if len(doubts) < AGREEING:
                problems[one[6:9]] = "jump"
                continue
        doubts.clear()
        believed[one.vehicle] = one
    return {key: (problem, late[key]) for key, problem in problems.items()}


def reaches(begin: Row, end: Row) -> bool:
    """By the angle between the two vectors."""

    def vector(one: Row) -> tuple[float, float, float]:
        phi, theta = math.radians(one.lat or 0.0), math.radians(one.lon or 0.0)
        return math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi)

    chord = math.dist(vector(begin), vector(end))
    distance_m = 2.0 * 6_371_008.7714 * math.asin(min(1.0, chord / 2.0))
    return distance_m <= ((end.time_us or 0) - (begin.time_us or 0)) * 1e-6 * MAX_SPEED_MPS


def made_up(seed: int) -> list[Row]:
    dice = random.Random(seed)
    rows = []
    for vehicle in ["a", "b", "c", "ü"][: dice.randint(1, 4)]:
        lat, lon = dice.choice([(0.0, 0.0), (45.0, 9.0), (10.0, 179.99), (89.99, 5.0)])
        time_s = 0.0
        for _ in range(dice.randint(1, 60)):
            time_s += dice.choice([0.0, 0.5, 1.0, 10.0])
            lat, lon = lat + dice.gauss(0, 1e-4), lon + dice.gauss(0, 1e-4)
            at = (min(lat, 90.0), (lon + 180.0) % 360.0 - 180.0)
            if dice.random() < 0.15:
                at = dice.choice(
                    [(0.0, 0.0), (math.nan, 1.0), (29817659.0, 1.0), (1.0, math.inf), (50.0, 9.0)]
                )
            if dice.random() < 0.03:
                lat += 1.0  # and it stays there
            problem = "bad-number" if dice.random() < 0.05 else None
            rows.append(row(0, vehicle, max(0.0, time_s - dice.choice([0, 0, 0, 1])), *at, problem))
    if dice.random() < 0.5:
        dice.shuffle(rows)
    rows += [row(0, None, problem="no-vehicle"), row(0, None, problem="no-vehicle")]
    return [
        one._replace(row=number, block=number // 50, source=dice.choice("fg"))
        for number, one in enumerate(rows)
    ]


def all_made_up() -> list[Row]:
    """Many traces as one: a job of Spark costs more than the rows in it."""
    rows = [
        one._replace(vehicle=one.vehicle and f"{one.vehicle}-{seed}")
        for seed in range(40)
        for one in made_up(seed)
    ]
    return [one._replace(row=number, block=number // 50) for number, one in enumerate(rows)]


def test_as_the_twin_says(spark: SparkSession) -> None:
    rows = all_made_up()
    assert judge(spark, rows) == twin(rows)


def test_the_made_up_traces_hold_all_kinds_of_dirt() -> None:
    found = twin(all_made_up()).values()
    assert {problem for problem, _ in found} == {
        None, "bad-number", "no-vehicle", "out-of-range", "null-island", "duplicate", "jump",
    }  # fmt: skip
    assert any(late for _, late in found)


def test_the_first_good_one_of_a_time_is_kept(spark: SparkSession) -> None:
    rows = [
        row(0, lat=99.0),
        row(1),
        row(2),
        row(3, problem="bad-number"),
        row(0, source="g"),
        row(4, vehicle="b"),
    ]
    found = judge(spark, rows)
    assert [found[one[6:9]][0] for one in rows] == [
        "out-of-range", None, "duplicate", "bad-number", "duplicate", None,
    ]  # fmt: skip


# The core of the jumps, without Spark.


def jumps(lats: list[float], step_s: float = 1.0) -> list[bool]:
    check = JumpCheck(MAX_SPEED_MPS)
    return [
        check.jumped("a", TimedPosition(round(i * step_s * 1e6), lat, 0.0))
        for i, lat in enumerate(lats)
    ]


def test_a_stray_fix_takes_no_good_one_along() -> None:
    assert jumps([1.0, 1.0, 5.0, 1.0, 1.0]) == [False, False, True, False, False]


def test_two_vehicles_under_one_name() -> None:
    assert jumps([1.0, 5.0, 1.0, 5.0, 1.0]) == [False, True, False, True, False]


def test_a_stray_first_fix_does_not_condemn_the_rest() -> None:
    assert jumps([5.0, 1.0, 1.0, 1.0, 1.0]) == [False, True, True, False, False]


def test_the_bound_is_kept() -> None:
    assert jumps([1.0, 1.0 + 99.0 / M_PER_DEG]) == [False, False]
    assert jumps([1.0, 1.0 + 101.0 / M_PER_DEG]) == [False, True]
    assert jumps([1.0, 1.0 + 101.0 / M_PER_DEG], step_s=1.1) == [False, False]


@pytest.mark.parametrize("seed", range(20))
def test_batches_of_any_size_are_judged_alike(seed: int) -> None:
    schema = to_arrow_schema(CHECKED)
    good = [one for one in made_up(seed) if one.problem is None and abs(one.lat or 99) <= 90]
    rows = {(one.vehicle, one.time_us): one for one in good if abs(one.lon or 999) <= 180}.values()
    ordered = sorted(rows, key=lambda one: (one.vehicle or "", one.time_us or 0))
    table = pa.Table.from_pylist([{**one._asdict(), "late": False} for one in ordered], schema)

    def judged(size: int) -> list[str | None]:
        marked = mark_jumps(MAX_SPEED_MPS, iter(table.to_batches(size)))
        return [problem for batch in marked for problem in batch.column("problem").to_pylist()]

    assert judged(1) == judged(7) == judged(10_000)
