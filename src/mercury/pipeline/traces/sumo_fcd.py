"""SUMO's floating car data (FCD)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mercury.pipeline.traces.columns import ColumnNames, Reading
from mercury.pipeline.traces.inputs import Alike
from mercury.pipeline.traces.interpret import fixes
from mercury.pipeline.traces.text_rows import TextRow, UnreadableFileError, read_with
from mercury.roads.sumo_xml import SumoFile

_MOVING = ("vehicle", "person")
_COLUMNS = ColumnNames("id", ("time",), "y", "x", "speed", "angle")


def inspect(paths: Sequence[str], reading: Reading) -> tuple[list[Alike], list[str]]:
    """All files have the same attributes."""
    known = replace(reading, columns=_COLUMNS, time_format="epoch-s", speed_unit="m/s")
    return [Alike(list(paths), known)], []


def read(spark: SparkSession, found: Alike) -> DataFrame:
    """The fixes of FCD files, which must be made with geographic coordinates."""
    return fixes(read_with(spark, found.paths, read_rows), found.reading)


def read_rows(path: str) -> Iterator[TextRow]:
    """The rows of one file."""
    trace = _Trace()
    try:
        for _ in trace.read(Path(path)):
            yield from trace.take()
    except UnreadableFileError:
        yield from trace.take()  # what came before
        raise


class _Trace(SumoFile):
    root, kind, error = "fcd-export", "SUMO FCD", UnreadableFileError

    def __init__(self) -> None:
        self._rows: list[TextRow] = []
        self._time: str | None = None

    def take(self) -> list[TextRow]:
        rows, self._rows = self._rows, []
        return rows

    def begin(self, name: str, values: dict[str, str]) -> None:
        if name == "timestep":
            self._time = values.get("time")
        elif name in _MOVING:
            get = values.get
            original = json.dumps({"time": self._time, **values}, ensure_ascii=False)
            self._rows.append(
                TextRow(
                    get("id"), self._time, get("y"), get("x"), get("speed"), get("angle"), original
                )
            )
