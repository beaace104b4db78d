"""`mercury import` as a person runs it, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import mercury
from live import eventually

from mercury.java.runtime import find_java
from mercury.model.errors import JavaError


@pytest.mark.jvm
def test_import_prints_what_it_accepted_and_rejected(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    (tmp_path / "a.csv").write_text("id,time,lat,lon\n1,1,45,9\n1,2,45,9\n1,2,45,9\n1,3,0,0\n")
    result = mercury(
        "import", "a.csv", "--to", "parquet", "table", "--bus", "embedded:bus.db", "--json",
        folder=tmp_path, timeout_s=180.0,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["kept"], summary["appended"]) == (4, 2, 2)
    assert summary["rejected"] == {"duplicate": 1, "null-island": 1}
    assert summary["rejects"] == "table-rejects"
    (columns,) = summary["columns"]
    assert (columns["files"], columns["vehicle"], columns["speed"]) == (1, '"id"', "none")
    assert list((tmp_path / "table" / "day=1970-01-01").glob("*.parquet"))
    assert list((tmp_path / "table-rejects").glob("*.parquet"))
    again = mercury("import", "a.csv", "--to", "parquet", "table", folder=tmp_path)
    assert again.returncode == 1
    assert again.stderr == "mercury: table is not empty: choose another, or say --overwrite\n"


@pytest.mark.jvm
def test_the_columns_are_shown_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,time,lat,lon,Speed (km/h)\n1,1,45,9,36\n")
    (tmp_path / "b.csv").write_text("id,time,lat,lon,Speed (km/h)\n2,1,45,9,36\n")
    (tmp_path / "c.xml").write_text("<fcd-export/>")
    result = mercury(
        "import", "a.csv", "b.csv", "c.xml", "--to", "parquet", "table",
        "--speed-column", "Speed (km/h)", "--time-origin", "2024-05-01T08:00Z",
        folder=tmp_path, JAVA_HOME="/nowhere",
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        f"columns of {tmp_path / 'a.csv'} and 1 more:",
        '  vehicle ← "id"',
        '  time    ← "time" (a number since 2024-05-01T08:00:00Z, or ISO 8601;'
        " UTC unless it says so)",
        '  lat     ← "lat"',
        '  lon     ← "lon"',
        '  speed   ← "Speed (km/h)" (km/h → m/s)',
        "  heading ← none",
        f"columns of {tmp_path / 'c.xml'}:",
        '  vehicle ← "id"',
        '  time    ← "time" (seconds since 2024-05-01T08:00:00Z)',
        '  lat     ← "y"',
        '  lon     ← "x"',
        '  speed   ← "speed" (m/s)',
        '  heading ← "angle" (degrees)',
    ]  # fmt: skip
    assert "does not run: install Java" in result.stderr


@pytest.mark.jvm
def test_no_table_is_written_of_nothing(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    (tmp_path / "a.csv").write_text("id,time,lat,lon\n")
    (tmp_path / "b.xml").write_text("noise")
    (tmp_path / "c.csv").write_text("id,time,lat,lon\n1,1,91,0\n1,2,92,0\n")
    to = ("--to", "parquet", "table", "--overwrite")
    for names, why in (
        (["a.csv"], ": there are no rows"),
        (["a.csv", "b.xml", "c.csv"],
         " (2 out-of-range, 1 unreadable-file; table-rejects has more)"),
    ):  # fmt: skip
        result = mercury("import", *names, *to, folder=tmp_path, timeout_s=180.0)
        assert result.returncode == 1
        sentence = f"mercury: nothing was written to table, as no row could be kept{why}"
        assert result.stderr.splitlines()[-1] == sentence
        assert "kept  " not in result.stdout
        assert not (tmp_path / "table").exists()


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("Spark is starting", "interrupted; nothing was written"),
        ("appending to the bus", "interrupted while appending to the bus: 1 report went there"),
    ],
)
def test_ctrl_c_is_one_line_and_ends_spark(step: str, sentence: str, tmp_path: Path) -> None:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    (tmp_path / "a.csv").write_text("id,time,lat,lon\n1,1,45,9\n1,999,45,9\n")
    command = [sys.executable, "-m", "mercury", "import", "a.csv", "--bus", "embedded:bus.db"]
    said = tmp_path / "stderr"
    with (
        said.open("w") as stderr,
        subprocess.Popen(
            [*command, "--speed", "1"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        eventually(lambda: step in said.read_text(), 120.0, step)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(60.0) == 130
    lines = said.read_text().splitlines()
    assert [line for line in lines if "(" not in line] == [f"mercury: {sentence}"]

    def ended() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(ended, 30.0, "Spark has ended")
