"""`mercury load` as a person runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import mercury
from live import eventually
from typer.testing import CliRunner

from mercury.cli.main import app
from mercury.model.errors import MercuryError

SMALL = ("--entities", "200", "--size", "3x2", "--for", "0.5s", "--warm-up", "0")


def test_a_run_as_json(tmp_path: Path) -> None:
    done = mercury("load", "--to", "null:", *SMALL, "--rate", "4", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["offered"], found["sent"], found["unsent"]) == (400, 400, 0)
    assert (found["entities"], found["radius_m"], found["seed"]) == (200, [50.0, 500.0], 1)
    assert set(found["own_lag"]) == {"p50_ms", "p99_ms", "max_ms"}


def test_a_run_in_words(tmp_path: Path) -> None:
    to = f"file:{tmp_path}/trace.csv.gz"
    done = CliRunner().invoke(app, ["load", "--to", to, *SMALL, "--rate", "4"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == f"400 updates offered to {to} in 0.5 s (800/s): 400 taken, 0 dropped."
    assert lines[1].startswith("Own lag: p50 ")
    assert (tmp_path / "trace.csv.gz").is_file()


def test_ctrl_c_ends_it_with_a_summary(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mercury.cli.main", "load", "--to", "file:trace.csv.gz"]
    with subprocess.Popen(
        [*command, "--size", "3", "--entities", "100", "--for", "5m"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        eventually((tmp_path / "trace.csv.gz").exists, 30.0, "it begins to drive")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "updates offered to file:trace.csv.gz" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--to", "nowhere:"), "load cannot go to 'nowhere:'"),
        (("--to", "null:", "--for", "soon"), "--for takes a time such as 30s or 5m, not 'soon'"),
        (("--to", "null:", "--where", "5"), "--where 5 is not a share above 0 and at"),
        (("--to", "null:", "--size", "0.5"), "a city of 0.5 km is none: its sides are from 1 to"),
        (("--to", "null:", "--radius", "near"), "--radius takes metres such as 50..500"),
        (("--to", "null:", "--roads", "no.osm.pbf"), "there is no file no.osm.pbf"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = CliRunner().invoke(app, ["load", *arguments])
    assert isinstance(done.exception, MercuryError)  # which `main` prints
    assert str(done.exception).startswith(sentence)
