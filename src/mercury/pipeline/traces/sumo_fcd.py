"""SUMO's floating car data (FCD) in XML, read as a stream.

Expat calls back for each element, so that no tree is built however long the simulation was. A
document type is refused: without one there are no entities, neither to expand nor to fetch.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.parsers import expat

from pyspark.sql import DataFrame, SparkSession

from mercury.pipeline.traces.columns import Columns, Reading
from mercury.pipeline.traces.inputs import Alike
from mercury.pipeline.traces.interpret import fixes
from mercury.pipeline.traces.text_rows import TextRow, UnreadableFileError, read_with

_CHUNK = 1 << 16
_MAX_ELEMENT = 1 << 20  # Expat holds an unfinished element in memory
_ROOT = "fcd-export"
_MOVING = ("vehicle", "person")
_COLUMNS = Columns("id", ("time",), "y", "x", "speed", "angle")


def look(paths: Sequence[str], reading: Reading) -> tuple[list[Alike], list[str]]:
    """All files have the same attributes."""
    known = replace(reading, columns=_COLUMNS, time_format="epoch-s", speed_unit="m/s")
    return [Alike(list(paths), known)], []


def read(spark: SparkSession, found: Alike) -> DataFrame:
    """The fixes of FCD files, which must be made with geographic coordinates."""
    return fixes(read_with(spark, found.paths, read_rows), found.reading)


def read_rows(path: str) -> Iterator[TextRow]:
    """The rows of one file."""
    document = _Document()
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")  # noqa: SIM115
    with opened as file:
        try:
            while chunk := file.read(_CHUNK):
                document.feed(chunk)
                yield from document.take()
            document.end()
        except (expat.ExpatError, zlib.error, EOFError) as error:
            yield from document.take()
            raise UnreadableFileError(f"not well-formed from here: {error}") from None


class _Document:
    """What Expat has met so far."""

    def __init__(self) -> None:
        self._rows: list[TextRow] = []
        self._time: str | None = None
        self._inside = False
        self._fed = 0
        self._parser = parser = expat.ParserCreate()
        parser.StartElementHandler = self._element
        parser.StartDoctypeDeclHandler = _refuse

    def feed(self, chunk: bytes) -> None:
        self._fed += len(chunk)
        self._parser.Parse(chunk, False)
        if self._fed - self._parser.CurrentByteIndex > _MAX_ELEMENT:
            raise UnreadableFileError("an element is longer than a megabyte")

    def end(self) -> None:
        self._parser.Parse(b"", True)

    def take(self) -> list[TextRow]:
        rows, self._rows = self._rows, []
        return rows

    def _element(self, name: str, values: dict[str, str]) -> None:
        if not self._inside:
            if name != _ROOT:
                raise UnreadableFileError(f"no SUMO FCD: the file is a <{name}>")
            self._inside = True
        elif name == "timestep":
            self._time = values.get("time")
        elif name in _MOVING:
            get = values.get
            original = json.dumps({"time": self._time, **values}, ensure_ascii=False)
            self._rows.append(
                TextRow(
                    get("id"), self._time, get("y"), get("x"), get("speed"), get("angle"), original
                )
            )


def _refuse(*_declaration: object) -> None:
    raise UnreadableFileError("refused: the file declares a document type")
