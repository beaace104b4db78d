"""The output of an import: the accepted positions, and the rejected rows."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

POSITION_COLUMNS = ["vehicle", "time_us", "lat", "lon", "speed_mps", "heading_deg", "source"]
REJECT_COLUMNS = ["reason", "source", "vehicle", "time_us", "lat", "lon", "original"]


def positions(checked: DataFrame) -> DataFrame:
    """The accepted fixes."""
    return checked.where(F.col("problem").isNull()).select(POSITION_COLUMNS)


def rejects(checked: DataFrame) -> DataFrame:
    """The rejected rows, with the reason and the original text."""
    return (
        checked.where(F.col("problem").isNotNull())
        .withColumnRenamed("problem", "reason")
        .select(REJECT_COLUMNS)
    )


def write_by_day(rows: DataFrame, folder: Path, time_us: str, *order: str) -> None:
    """Parquet by the day (UTC) of a time; ordered in a file, so that a reader skips most of it."""
    day = F.date_format(F.timestamp_micros(time_us), "yyyy-MM-dd")
    (
        rows.withColumn("day", day)
        .sortWithinPartitions("day", *order)
        .write.mode("overwrite")
        .partitionBy("day")
        .option("compression", "zstd")
        .parquet(f"file://{folder.absolute()}")
    )


def write_rejects(rejected: DataFrame, folder: Path, table_format: str) -> None:
    """Write the rejects; the table exists also when it is empty."""
    writer = rejected.write.mode("overwrite").format(table_format)
    if table_format == "csv":
        writer = writer.option("header", "true").option("escape", '"')
    writer.save(str(folder))
