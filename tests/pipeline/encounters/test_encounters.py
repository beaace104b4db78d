"""Encounters on Spark: the same however time and place are cut, and as by brute force."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from matching.encounters_world import BEGIN_US, SECOND_US, Met, Report, brute_force, random_tracks
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner, Result

from mercury.cli.data import stored_tables
from mercury.cli.main import app
from mercury.geo import haversine_m
from mercury.geo.distance import destination
from mercury.geo.grid import Grid
from mercury.matching.encounters import EncounterRule
from mercury.model.area import Area, Circle, Position
from mercury.pipeline.encounters.job import EncounterQuery, encounters_in
from mercury.pipeline.encounters.schemas import ENCOUNTER
from mercury.pipeline.encounters.tiles import tiles_within
from mercury.pipeline.encounters.transforms import Tiling
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.tables import TABLES
from mercury.pipeline.history.tiles import tile_numbers, tile_of

RULE = EncounterRule(radius_m=50.0, hysteresis_m=20.0, gap_s=30.0)
MINUTE_US = 60 * SECOND_US
# In a valley, and on an island that the antimeridian crosses.
TRACKS = random_tracks(1, clients=8, seconds=300, together=True) + [
    one._replace(client=f"far-{one.client}")
    for one in random_tracks(2, clients=8, seconds=300, middle=(-16.8, 180.0))
]
REPORT = "client string, time_us long, lat double, lon double, offset long"


def frame(spark: SparkSession, reports: list[Report]) -> DataFrame:
    return spark.createDataFrame([(*one, at) for at, one in enumerate(reports)], REPORT)


def found(rows: DataFrame) -> list[Met]:
    assert rows.schema == ENCOUNTER
    listed = rows.collect()
    assert all(row.duration_s == (row.until_us - row.from_us) / 1e6 for row in listed)
    return sorted(Met(*(row[name] for name in Met._fields)) for row in listed)


def same(one: list[Met], other: list[Met]) -> None:
    assert [met[:4] for met in one] == [met[:4] for met in other]
    assert [met[5:] for met in one] == [met[5:] for met in other]
    nearest = [met.nearest_m for met in other]
    assert [met.nearest_m for met in one] == pytest.approx(nearest, abs=0.002)


@pytest.fixture(scope="module")
def expected() -> list[Met]:
    met = brute_force(TRACKS, RULE)
    assert len(met) > 40
    return met


@pytest.mark.parametrize(
    ("tile_m", "window_us", "partitions"),
    [
        (5_000.0, 60 * MINUTE_US, 1),
        (60.0, 60 * MINUTE_US, 3),  # less than the reach
        (170.0, 70 * SECOND_US + 1, 5),
    ],
)
def test_the_cut_does_not_matter(
    spark: SparkSession, expected: list[Met], tile_m: float, window_us: int, partitions: int
) -> None:
    reports = frame(spark, TRACKS).repartition(partitions)
    kept = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        same(
            found(encounters_in(reports, EncounterQuery(RULE), Tiling(tile_m, window_us))), expected
        )
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", kept or "2")


def test_encounters_of_one_client_or_of_two(spark: SparkSession) -> None:
    reports = frame(spark, TRACKS)
    asked = EncounterQuery(RULE, of="car-3")
    expected = brute_force(TRACKS, RULE, of="car-3")
    assert {met.client for met in expected} == {"car-3"}
    same(found(encounters_in(reports, asked, Tiling(100.0, MINUTE_US))), expected)
    other = expected[0].other
    two = EncounterQuery(RULE, between=(other, "car-3"))
    expected = [met for met in brute_force(TRACKS, RULE, of=other) if met.other == "car-3"]
    assert expected
    same(found(encounters_in(reports, two)), expected)


def test_a_span_of_time_and_a_least_duration(spark: SparkSession) -> None:
    rule = EncounterRule(50.0, 20.0, 12.0, 30.0)
    from_us, to_us = BEGIN_US + 100 * SECOND_US + 1, BEGIN_US + 220 * SECOND_US
    asked = EncounterQuery(rule, from_us=from_us, to_us=to_us)
    expected = brute_force(TRACKS, rule, from_us=from_us, to_us=to_us)
    assert from_us in {met.from_us for met in expected}
    assert to_us in {met.until_us for met in expected}
    same(found(encounters_in(frame(spark, TRACKS), asked, Tiling(500.0, MINUTE_US))), expected)


def test_while_both_are_in_an_area(spark: SparkSession) -> None:
    place = Area(Circle(Position(45.0, 9.0), 80.0))
    # As if whoever is outside were at home, each in another town.
    moved = [
        one
        if haversine_m(one.lat, one.lon, 45.0, 9.0) <= 80.0
        else one._replace(lat=float(homes), lon=100.0)
        for homes, one in ((int(one.client[-1]) - 60, one) for one in TRACKS)
        if one.client.startswith("car")
    ]
    expected = brute_force(moved, RULE)
    assert len(expected) > 5
    same(found(encounters_in(frame(spark, TRACKS), EncounterQuery(RULE, area=place))), expected)


def test_what_is_no_place_is_passed_by(spark: SparkSession) -> None:
    at_us = BEGIN_US
    rows = [
        ("a", at_us, 45.0, 9.0, 0),
        ("b", at_us, 50.0, 9.0, 0),  # said again at once: the later holds
        ("b", at_us, 45.0, 9.0, 1),
        ("b", at_us + 1, None, None, 2),
        ("b", at_us + 2, 95.0, 9.0, 3),
        ("b", at_us + 3, math.nan, math.nan, 4),
        (None, at_us, 45.0, 9.0, 0),
    ]
    (met,) = found(encounters_in(spark.createDataFrame(rows, REPORT), EncounterQuery(RULE)))
    assert met[:4] == ("a", "b", at_us, at_us + 30 * SECOND_US)
    assert (met.nearest_m, met.lat, met.lon) == (0.0, 45.0, 9.0)
    assert found(encounters_in(spark.createDataFrame([], REPORT), EncounterQuery(RULE))) == []


@pytest.mark.parametrize("lat", [0.0, 45.3, -89.99, 89.9])
@pytest.mark.parametrize("tile_m", [40.0, 333.0, 20_000.0])
def test_tiles_within_reach(lat: float, tile_m: float) -> None:
    rng = np.random.default_rng(3)
    grid = Grid(tile_m)
    lats = np.clip(lat + rng.uniform(-0.01, 0.01, 100), -90.0, 90.0)
    lons = rng.choice([0.0, 179.9999, -180.0, 33.0], 100) + rng.uniform(0.0, 0.00005, 100)
    copies = tiles_within(grid, lats, lons, 100.0)
    assert len(set(zip(copies.row.tolist(), copies.tile.tolist(), strict=True))) == len(copies.row)
    for row in range(100):
        tiles = set(copies.tile[copies.row == row].tolist())
        there = destination(lats[row], lons[row], rng.uniform(0, 360, 50), rng.uniform(0, 99.0, 50))
        assert set(grid.cell_of(*there).tolist()) <= tiles
        if abs(lat) < 60.0:
            assert len(tiles) <= (200.0 / tile_m + 2.2) ** 2


def test_windows_are_long_where_there_is_little() -> None:
    assert Tiling.suiting(RULE, 10.0) == Tiling(5_000.0, 24 * 60 * MINUTE_US)
    assert Tiling.suiting(RULE, 4e6) == Tiling(5_000.0, 30 * MINUTE_US)
    assert Tiling.suiting(EncounterRule(2_000.0, 0.0), 1e12) == Tiling(16_000.0, 15 * MINUTE_US)


# The command

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("met")
    stored = HistoryFolder(root / "history")
    tiles = tile_numbers(*(np.array([one[at] for one in TRACKS]) for at in (2, 3)))
    rows = [
        {**one._asdict(), "offset": at, "day": day(one.time_us), "tile": tile_of(tiles[at])}
        for at, one in enumerate(TRACKS)
    ]
    schema = TABLES["reports"].schema
    staging = stored.new_staging("test")
    stored.stage(spark.createDataFrame([tuple(map(row.get, schema.names)) for row in rows], schema),
                 staging, "reports")  # fmt: skip
    (staging / "reports").rename(root / "history" / "reports")
    return root


def day(time_us: int) -> str:
    return str(np.datetime64(time_us, "us").astype("datetime64[D]"))


@pytest.fixture
def run(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def session(settings: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(stored_tables, "session", session)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("MERCURY_PIPELINE__HISTORY_FOLDER", "history")
    return lambda *arguments: CliRunner().invoke(
        app, ("history", "encounters", *arguments), catch_exceptions=False
    )


def answer(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    written: dict[str, Any] = json.loads(result.stdout)
    return written


RULED = ("--hysteresis", "20", "--gap", "30s", "--min-duration", "0s")


def test_the_command_prints_and_writes_encounters(
    run: Run, folder: Path, expected: list[Met]
) -> None:
    written = answer(run(*RULED, "--json", "--limit", "3", "--out", "met"))
    assert written["encounters"] == len(expected)
    assert written["pairs"] == len({met[:2] for met in expected})
    assert written["clients"] == 16
    assert len(written["listed"]) == 3
    assert written["listed"][0]["from_us"] == min(met.from_us for met in expected)
    table = pq.read_table(folder / "met")
    assert table.num_rows == len(expected)
    assert set(table.column_names) == {*ENCOUNTER.names, "day"}
    long = run("--hysteresis", "20", "--gap", "30s", "--of", "car-3", "--limit", "1").stdout
    count = sum(
        met.until_us - met.from_us >= 10 * SECOND_US
        for met in brute_force(TRACKS, RULE, of="car-3")
    )
    assert f"{count:,} encounters" in long
    assert "1 listed" in long
    nobody = run(*RULED, "--between", "car-1", "far-car-1")
    assert nobody.stdout == "no encounter\n"


def test_encounters_are_found_in_an_imported_table(
    run: Run, spark: SparkSession, tmp_path: Path, expected: list[Met]
) -> None:
    rows = [(*one, None, None, "x", day(one.time_us)) for one in TRACKS]
    names = "vehicle string, time_us long, lat double, lon double, speed_mps double, "
    table = spark.createDataFrame(rows, names + "heading_deg double, source string, day string")
    table.write.partitionBy("day").parquet(str(tmp_path / "positions"))
    written = answer(run(*RULED, "--positions", str(tmp_path / "positions"), "--json"))
    assert written["encounters"] == len(expected)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--radius", "0"], "a radius of 0 m"),
        (["--hysteresis", "-1"], "a hysteresis of -1 m"),
        (["--gap", "soon"], "--gap takes a length of time"),
        (["--gap", "0s"], "a gap of 0 s"),
        (["--min-duration", "10"], "--min-duration takes a length of time"),
        (["--of", "a", "--between", "b", "c"], "of one client, or between two"),
        (["--between", "b", "b"], "b cannot meet itself"),
        (["--area", "1,2,x"], "expected lat,lon,radius_m"),
        (["--area", "nowhere.json"], "cannot read --area"),
        (["--out", "history/met"], "is, holds or is in the folder that is read"),
        (["--out", ".", "--overwrite"], "is, holds or is in the folder that is read"),
        (["--positions", "nowhere"], "is no folder of positions"),
        (["--positions", "x", "--folder", "y"], "from --folder or from --positions"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        run(*arguments)
