"""`mercury history` and `mercury replay`, on one Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pipeline.history import recording
from pipeline.whole_bus import store_batch
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from mercury.cli.data import stored_tables
from mercury.cli.main import app
from mercury.model.area import Area, Circle
from mercury.model.geojson import area_to_geojson

Run = Callable[..., Result]
NEXT_DAY = "2026-03-02"
MIDNIGHT = f"{NEXT_DAY}T00:00"


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("asked")
    with recording.opened(root / "bus.db") as bus:
        recording.fill(bus, steps=4, vehicles=20)
    store_batch(spark, f"embedded:{root / 'bus.db'}", root / "bus.db-history")
    return root


@pytest.fixture
def run(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def session(settings: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(stored_tables, "session", session)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MERCURY_BUS__URI", "embedded:bus.db")
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments: CliRunner().invoke(app, arguments, catch_exceptions=False)


def answer(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_where_a_vehicle_was(run: Run) -> None:
    [last] = answer(run("history", "where", "car-7", "--json"))["track"]
    assert last["time"] == "2026-03-02T00:15:00.000000+00:00"
    [then] = answer(run("history", "where", "car-7", "--at", "2026-03-01T23:50", "--json"))["track"]
    assert then["time"] == "2026-03-01T23:45:00.000000+00:00"
    assert (then["speed_mps"], then["heading_deg"]) == (12.5, 90.0)
    way = answer(run("history", "where", "car-7", "--from", "2026-03-01T23:45", "--json"))["track"]
    assert [one["time"][11:16] for one in way] == ["23:45", "00:00", "00:15"]
    assert "23:45" in run("history", "where", "car-7", "--to", MIDNIGHT).stdout
    assert run("history", "where", "nobody").stdout == "no report of nobody\n"


def test_what_happened_in_an_area(run: Run, tmp_path: Path) -> None:
    near = ("history", "area", "--area", "40.751,-111.9,300")
    found = answer(run(*near, "--json"))
    assert [one["what"] for one in found["happened"]] == ["alert", "event"] * 4
    assert {one["kind"] for one in found["happened"]} == {"collision"}
    assert found["happened"][1]["who"] == "car-1"
    # The alert reaches 800 m far, and the crash is 900 m from here.
    far = ("history", "area", "--area", "40.7581,-111.9,300")
    assert {one["what"] for one in answer(run(*far, "--json"))["happened"]} == {"alert"}
    area = tmp_path / "area.json"
    area.write_text(json.dumps(area_to_geojson(Area(Circle(recording.CRASH, 50_000.0)))))
    wide = ("history", "area", "--area", str(area))
    found = answer(run(*wide, "--kind", "obstacle", "--to", MIDNIGHT, "--json"))
    assert [one["kind"] for one in found["happened"]] == ["obstacle"] * 2
    assert (found["reports"], found["vehicles"]) == (40, 20)
    assert "80 reports of 20 vehicles" in run(*wide).stdout


def test_the_busiest_tiles(run: Run) -> None:
    found = answer(run("history", "busiest", "--top", "3", "--json"))
    assert found["day"] == NEXT_DAY
    counts = [one["reports"] for one in found["tiles"]]
    assert len(counts) == 3
    assert counts == sorted(counts, reverse=True)
    assert 40.4 < found["tiles"][0]["lat"] < 41.1
    assert "2026-03-01 to 2026-03-02" in str(run_fails(run, "history", "busiest", "--day", "x"))


def test_tables_and_compaction(run: Run) -> None:
    found = answer(run("history", "tables", "--json"))["tables"]
    assert {one["table"]: one["rows"] for one in found} == {
        "reports": 80, "events": 8, "alerts": 8, "deliveries": 4, "rejects": 36,
        "ledger": 0, "outcomes": 0,
    }  # fmt: skip
    merged = answer(run("history", "compact", "--json"))
    assert merged["files_after"] == merged["partitions"]  # each task had written its own
    assert answer(run("history", "tables", "--json"))["tables"] != found
    assert answer(run("history", "compact", "--json"))["partitions"] == 0
    assert "became" in run("history", "compact").stdout


def test_a_stored_hour_is_put_back(run: Run, tmp_path: Path) -> None:
    bus = f"embedded:{tmp_path / 'new.db'}"
    span = ("--from", "2026-03-01T23:30", "--to", MIDNIGHT)
    folder = ("--folder", "bus.db-history")
    result = run("replay", *span, "--speed", "max", "--bus", bus, *folder, "--json")
    assert answer(result) == {"records": 2 * (20 + 5 + 4), "interrupted": False}
    with recording.opened(tmp_path / "new.db") as new:
        found = recording.everything(new)
    assert {one.topic for one in found} == {"reports", "events.collision", "events.obstacle"}
    assert len(found) == 58


def run_fails(run: Run, *arguments: str) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["where", "x", "--at", "soon"], "--at takes a time"),
        (["where", "x", "--at", "1h", "--to", "1h"], "--at is one time"),
        (["where", "x", "--from", "1h", "--to", "2h"], "--from is not before --to"),
        (["where", "x", "--folder", "nowhere"], "there is no such folder"),
        (["area", "--area", "1,2"], "cannot read --area 1,2"),
        (["area", "--area", "91,1,500"], "latitude 91"),
        (["area", "--area", "none.json"], "cannot read --area none.json: No such file"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    assert sentence in str(run_fails(run, "history", *arguments))


def test_a_speed_is_a_number(run: Run) -> None:
    error = run_fails(run, "replay", "--from", "2h", "--to", "1h", "--speed", "fast")
    assert "--speed takes" in str(error)
