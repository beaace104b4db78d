"""The stored tables: which records go to which, and with what columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from mercury.model import topics
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

DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REJECTS = "rejects"


class Table(NamedTuple):
    """One table: what it is made of."""

    name: str
    topics: tuple[str, ...]
    columns: StructType

    @property
    def schema(self) -> StructType:
        """The columns as a reader sees them, those in the folders' names last."""
        return joined(self.columns, ORIGIN, PLACES)


TABLES = {
    table.name: table
    for table in (
        Table("reports", (topics.REPORTS,), REPORT_COLUMNS),
        Table("events", (f"{topics.EVENTS_PREFIX}*",), EVENT_COLUMNS),
        Table("alerts", topics.ALERTS, ALERT_COLUMNS),
        Table("deliveries", (topics.DELIVERIES,), DELIVERY_COLUMNS),
        Table(REJECTS, (), REJECT_COLUMNS),
    )
}
TOPICS = tuple(topic for table in TABLES.values() for topic in table.topics)


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


def day_of(time_us: int) -> str:
    """The day under which a time is stored."""
    return (_EPOCH + timedelta(microseconds=time_us)).date().isoformat()
