"""What docs/how-to/load-test.md shows is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from mercury.cli.main import load_command
from mercury.load.counters import LoadCounters, TimeHistogram
from mercury.load.drivers.api import OPENERS
from mercury.load.generator import LoadResult

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "load-test.md").read_text("utf-8")


def test_the_flags_are_those_of_the_command() -> None:
    command = load_command("load")
    known = {flag for parameter in command.params for flag in parameter.opts} - {"--help"}
    assert set(re.findall(r"(?<!`)--[a-z][a-z-]*|(?<=`)--[a-z][a-z-]*", TEXT)) == known


def test_all_drivers_are_told_of() -> None:
    assert set(re.findall(r"^\| `([a-z+]+):", TEXT, re.MULTILINE)) == set(OPENERS)


def test_every_key_of_the_json_is_explained() -> None:
    result = LoadResult(1.0, 0.0, 0, 0, TimeHistogram(), 0.0, LoadCounters())
    [table] = re.findall(r"\| key \| meaning \|\n(.*?)\n\n", TEXT, re.DOTALL)
    told = {name.partition(".")[0] for name in re.findall(r"`([a-z_.0-9]+)`", table)}
    assert set(result.to_json()) <= told


def test_the_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(code.replace('"city"', '"city", size_m=(3000.0, 3000.0)'), names)
    assert len(names["declared"]) == 1000  # type: ignore[arg-type]
    assert len(names["lats"]) == 2000  # type: ignore[arg-type]
