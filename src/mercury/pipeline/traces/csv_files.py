"""Positions in CSV, also compressed with gzip, also as SUMO's converter writes it."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.model.errors import ConfigurationError
from mercury.pipeline.traces.columns import Reading
from mercury.pipeline.traces.inputs import Alike, alike, literal_path, source_path
from mercury.pipeline.traces.interpret import fixes
from mercury.pipeline.traces.schemas import TEXT_ROW, TEXTS
from mercury.pipeline.traces.text_rows import TextRow, UnreadableFileError

_SEPARATORS = ",;\t|"
_MAX_HEADER = 1 << 20
_CHUNK = 1 << 20
_WHOLE = "whole"  # the line, where it has more or fewer values than the header


class _Head(NamedTuple):
    """Files with the same are read together."""

    line: str
    compressed: bool


def inspect(paths: Sequence[str], reading: Reading) -> tuple[list[Alike], list[str]]:
    """Files by their header, and those that may be damaged."""
    found, unreadable = alike(paths, _head, lambda head: _header(head, reading), reading)
    return found, sorted({*unreadable, *(path for path in paths if path.endswith(".gz"))})


def _header(head: _Head, reading: Reading) -> list[str]:
    separator = _separator(head, reading)
    try:
        return next(csv.reader([head.line], delimiter=separator))
    except (csv.Error, TypeError):
        raise ConfigurationError(f"--separator {separator!r} is not one character") from None


def _separator(head: _Head, reading: Reading) -> str:
    return reading.separator or max(_SEPARATORS, key=head.line.count)


def read(spark: SparkSession, found: Alike) -> DataFrame:
    """The fixes of files with the same header."""
    paths, reading, head = found
    separator, header = _separator(head, reading), _header(head, reading)
    columns = reading.columns
    # Splitting the line ourselves keeps the original row, exactly, for the rejects.
    values = F.from_csv(
        "value",
        ", ".join([*(f"c{i} string" for i in range(len(header))), f"{_WHOLE} string"]),
        # RFC 4180: a quote within quotes is doubled.
        {"sep": separator, "escape": '"', "columnNameOfCorruptRecord": _WHOLE},
    )

    def of(name: str) -> Column:
        return F.col(f"v.c{header.index(name)}") if name else F.lit(None).cast("string")

    lines = spark.read.option("ignoreCorruptFiles", str(head.compressed).lower()).text(
        [literal_path(path) for path in paths]
    )
    rows = (
        lines.where(~F.trim("value").isin("", head.line.strip(), "\ufeff" + head.line.strip()))
        .select(
            values.alias("v"),
            F.col("value").alias("original"),
            source_path().alias("source"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("row"),
        )
        .select(
            of(columns.vehicle).alias("vehicle"),
            F.concat_ws(" ", *(of(name) for name in columns.time)).alias("time"),
            *(of(getattr(columns, name)).alias(name) for name in TEXTS[2:]),
            "source",
            "block",
            "row",
            "original",
            F.when(F.col(f"v.{_WHOLE}").isNotNull(), "column-count").alias("problem"),
        )
    )
    return fixes(rows.select(TEXT_ROW.names), reading)


def _head(path: str) -> _Head:
    with _opened(path) as file:
        data = file.readline(_MAX_HEADER)
    line = data.decode("utf-8-sig", "replace").partition("\r")[0].rstrip("\n")
    if not line.strip():
        raise UnreadableFileError("the file does not begin with a header")
    return _Head(line, path.endswith(".gz"))


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            yield cast("IO[bytes]", file)
    except (EOFError, OSError, zlib.error) as error:
        raise UnreadableFileError(f"damaged, read up to there: {error}") from None


def damage(path: str) -> Iterator[TextRow]:
    """No rows; raises where a file is damaged, which Spark would stop at or pass by in silence."""
    _head(path)
    with _opened(path) as file:
        while file.read(_CHUNK):
            pass
    yield from ()
