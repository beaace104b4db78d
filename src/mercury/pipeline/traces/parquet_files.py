"""Positions in Parquet, whatever the types of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.pipeline.traces.columns import Reading
from mercury.pipeline.traces.inputs import Alike, alike, literal_path, source_path
from mercury.pipeline.traces.interpret import fixes
from mercury.pipeline.traces.schemas import TEXT_ROW, TEXTS
from mercury.pipeline.traces.text_rows import TextRow, UnreadableFileError


def inspect(paths: Sequence[str], reading: Reading) -> tuple[list[Alike], list[str]]:
    """Files by their schema, and those that are damaged."""
    return alike(paths, _schema, lambda schema: schema.names, reading)


def read(spark: SparkSession, found: Alike) -> DataFrame:
    """The fixes of files with the same schema."""
    paths, reading, schema = found
    columns = reading.columns
    table = spark.read.parquet(*(literal_path(path) for path in paths))
    time = F.concat_ws(" ", *(_text(name) for name in columns.time))
    if len(columns.time) == 1 and pa.types.is_timestamp(schema.field(columns.time[0]).type):
        (name,) = columns.time
        moment = F.col(_quoted(name))
        if schema.field(name).type.tz is None:  # a wall clock's
            moment = F.to_utc_timestamp(moment.cast("timestamp"), reading.time_zone)
        time = F.unix_micros(moment).cast("string")
        reading = replace(reading, time_format="epoch-us")
    rows = table.select(
        _text(columns.vehicle).alias("vehicle"),
        time.alias("time"),
        *(_text(getattr(columns, name)).alias(name) for name in TEXTS[2:]),
        source_path().alias("source"),
        F.col("_metadata.file_block_start").alias("block"),
        F.col("_metadata.row_index").alias("row"),
        F.to_json(F.struct("*")).alias("original"),
        F.lit(None).cast("string").alias("problem"),
    )
    return fixes(rows.select(TEXT_ROW.names), reading)


def _text(name: str) -> Column:
    return F.col(_quoted(name)).cast("string") if name else F.lit(None).cast("string")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFileError(str(error)) from None


def damage(path: str) -> Iterator[TextRow]:
    """No rows; raises what is wrong with the file."""
    _schema(path)
    yield from ()
