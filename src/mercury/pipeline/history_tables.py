"""The stored tables: which records go to which, as what rows. Streams and batches run the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from mercury.model import topics
from mercury.pipeline.history_decoding import alerts, events
from mercury.pipeline.history_schemas import (
    ALERT_COLUMNS,
    DELIVERY_COLUMNS,
    EVENT_COLUMNS,
    ORIGIN,
    PLACES,
    REJECT_COLUMNS,
    REPORT_COLUMNS,
    joined,
)
from mercury.pipeline.places import PLACE_BYTES, PLACE_COLUMNS
from mercury.pipeline.tiles import NOWHERE, tile_at

_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REJECTS = "rejects"


def reports(records: DataFrame) -> DataFrame:
    """Records of `reports` as rows; `problem` says why one is none."""
    position = F.col("position")
    off_earth = (F.abs("lat") > 90.0) | (F.abs("lon") > 180.0)
    problem = (
        F.when(_text("key").isNull(), "bad-key")
        .when(position.isNull() | (F.length(position) != PLACE_BYTES), "no-position")
        .when(off_earth, "bad-coordinates")
    )
    return records.select(
        _text("key").alias("client"),
        "time_us",
        *PLACE_COLUMNS,
        *ORIGIN.names,
        problem.alias("problem"),
    )


def deliveries(records: DataFrame) -> DataFrame:
    """Records of `deliveries` as rows: whatever they say, it is kept."""
    on_earth = (F.abs("lat") <= 90.0) & (F.abs("lon") <= 180.0)
    return records.select(
        _text("key").alias("recipient"),
        "time_us",
        F.when(on_earth, F.col("lat")).alias("lat"),
        F.when(on_earth, F.col("lon")).alias("lon"),
        *ORIGIN.names,
        F.lit(None).cast("string").alias("problem"),
    )


def _text(column: str) -> Column:
    """Bytes as text; null where they are none, which Parquet readers would stumble over."""
    return F.try_validate_utf8(F.col(column).cast("string"))


class Table(NamedTuple):
    """One table: what it is made of."""

    name: str
    topics: tuple[str, ...]
    columns: StructType
    rows: Callable[[DataFrame], DataFrame] | None

    @property
    def schema(self) -> StructType:
        """The columns as a reader sees them, those in the folders' names last."""
        return joined(self.columns, ORIGIN, PLACES)


TABLES = {
    table.name: table
    for table in (
        Table("reports", (topics.REPORTS,), REPORT_COLUMNS, reports),
        Table("events", (f"{topics.EVENTS_PREFIX}*",), EVENT_COLUMNS, events),
        Table("alerts", topics.ALERTS, ALERT_COLUMNS, alerts),
        Table("deliveries", (topics.DELIVERIES,), DELIVERY_COLUMNS, deliveries),
        Table(REJECTS, (), REJECT_COLUMNS, None),
    )
}
TOPICS = tuple(topic for table in TABLES.values() for topic in table.topics)


def sorted_out(records: DataFrame) -> dict[str, DataFrame]:
    """The rows of each table that placed records hold, those with a `problem` among them."""
    return {
        table.name: table.rows(records.where(of_topics(table.topics)))
        for table in TABLES.values()
        if table.rows is not None
    }


def stored(table: Table, rows: DataFrame) -> DataFrame:
    """The good rows of a table as they are stored."""
    good = rows.where(F.col("problem").isNull())
    return good.select(
        *table.columns.names,
        *ORIGIN.names,
        _day().alias("day"),
        tile_at(F.col("lat"), F.col("lon")).alias("tile"),
    )


def rejected(tables: dict[str, DataFrame]) -> DataFrame:
    """The bad rows of all tables, as they are stored."""
    kept = ("problem", "time_us", *ORIGIN.names)
    parts = [rows.where(F.col("problem").isNotNull()).select(*kept) for rows in tables.values()]
    bad = reduce(DataFrame.unionByName, parts).withColumnRenamed("problem", "reason")
    return bad.select("*", _day().alias("day"), F.lit(NOWHERE).alias("tile"))


def spans(tables: dict[str, DataFrame]) -> DataFrame:
    """How many rows each partition of the bus gave, how far, and with what problem."""
    parts = [
        rows.select(
            F.lit(name).alias("table"), "topic", "partition", "offset", "time_us", "problem"
        )
        for name, rows in tables.items()
    ]
    every = reduce(DataFrame.unionByName, parts)
    return every.groupBy("table", "topic", "partition", "problem").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min("time_us").alias("first_us"),
        F.max("time_us").alias("last_us"),
        F.count("*").alias("rows"),
    )


def by_place(rows: DataFrame) -> DataFrame:
    """Rows in the order in which they are written: one task a partition, one vehicle together."""
    order = ("day", "tile", "key", "time_us", "offset")
    return rows.repartition("day", "tile").sortWithinPartitions(*order)


def of_topics(names: tuple[str, ...]) -> Column:
    """Whether a record is of one of these topics; `.*` ends a prefix."""
    topic = F.col("topic")
    plain = [name for name in names if not name.endswith(".*")]
    found = topic.isin(plain)
    for name in names:
        if name.endswith(".*"):
            found = found | topic.startswith(name[:-1])
    return found


def _day() -> Column:
    # Days are UTC's, whatever the session's time zone is.
    day = F.floor(F.col("time_us") / F.lit(_DAY_US)).cast("int")
    return F.date_from_unix_date(day).cast("string")


def day_of(time_us: int) -> str:
    """The day under which a time is stored."""
    return (_EPOCH + timedelta(microseconds=time_us)).date().isoformat()
