"""Reads files in Python: one task opens a file and streams its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.pipeline.traces.schemas import TEXT_ROW

UNREADABLE = "unreadable-file"
_ARROW = to_arrow_schema(TEXT_ROW)
_BATCH_ROWS = 4096


class TextRow(NamedTuple):
    """A row's values, as text; None where missing."""

    vehicle: str | None = None
    time: str | None = None
    lat: str | None = None
    lon: str | None = None
    speed: str | None = None
    heading: str | None = None
    original: str | None = None
    problem: str | None = None


class UnreadableFileError(Exception):
    """A file is damaged; the rows before the damage are valid."""


Reader = Callable[[str], Iterator[TextRow]]  # a path in, its rows out


def read_with(spark: SparkSession, paths: Sequence[str], reader: Reader) -> DataFrame:
    """The rows of files; a file that cannot be read (further) ends in a row that says so."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from _batches(path, _rows(reader, path))

    names = spark.createDataFrame([(path,) for path in paths], "path string")
    return names.mapInArrow(read, TEXT_ROW)


def _rows(reader: Reader, path: str) -> Iterator[TextRow]:
    try:
        yield from reader(path)
    except (UnreadableFileError, OSError) as error:
        why = str(error) or type(error).__name__
        yield TextRow(original=why, problem=UNREADABLE)


def _batches(path: str, rows: Iterator[TextRow]) -> Iterator[pa.RecordBatch]:
    done = 0
    while batch := list(islice(rows, _BATCH_ROWS)):
        *texts, original, problem = zip(*batch, strict=True)
        columns = [
            *texts, [path] * len(batch), [0] * len(batch), range(done, done + len(batch)),
            original, problem,
        ]  # fmt: skip
        yield pa.record_batch(columns, schema=_ARROW)
        done += len(batch)
