"""What an import leaves behind: the positions, and the rows that were not believed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

POSITION_COLUMNS = ["vehicle", "time_us", "lat", "lon", "speed_mps", "heading_deg", "source"]
REJECT_COLUMNS = ["reason", "source", "vehicle", "time_us", "lat", "lon", "original"]


def positions(checked: DataFrame) -> DataFrame:
    """The fixes that were believed."""
    return checked.where(F.col("problem").isNull()).select(POSITION_COLUMNS)


def rejects(checked: DataFrame) -> DataFrame:
    """The rows that were not, why, and as they stood in their file."""
    return (
        checked.where(F.col("problem").isNotNull())
        .withColumnRenamed("problem", "reason")
        .select(REJECT_COLUMNS)
    )


def write_positions(believed: DataFrame, folder: Path) -> None:
    """Parquet by day (UTC); in a file by vehicle and time, so that a reader skips most of it."""
    day = F.to_date(F.timestamp_micros("time_us"))
    (
        believed.withColumn("day", day)
        .sortWithinPartitions("day", "vehicle", "time_us")
        .write.mode("overwrite")
        .partitionBy("day")
        .parquet(str(folder))
    )


def write_rejects(rejected: DataFrame, folder: Path, table_format: str) -> None:
    """A table that is there also when it is empty."""
    writer = rejected.write.mode("overwrite").format(table_format)
    if table_format == "csv":
        writer = writer.option("header", "true").option("escape", '"')
    writer.save(str(folder))
