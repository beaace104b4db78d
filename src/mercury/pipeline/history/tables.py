"""The stored tables: which records go to which, and with what columns."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import StructType

from mercury.model import topics
from mercury.pipeline.history.schemas import (
    ALERT_COLUMNS,
    DELIVERY_COLUMNS,
    EVENT_COLUMNS,
    ORIGIN,
    PLACES,
    REJECT_COLUMNS,
    REPORT_COLUMNS,
)
from mercury.pipeline.ledger.schemas import LEDGER_COLUMNS, OUTCOME_COLUMNS
from mercury.pipeline.schemas import joined

# Keeps the files of a busy tile below a few hundred megabytes.
FILE_ROWS = 4_000_000

REJECTS = "rejects"
LEDGER = "ledger"  # the outcome of each message, for each of its recipients
OUTCOMES = "outcomes"  # the same aggregated: a row for each message


class Table(NamedTuple):
    """A stored table."""

    name: str
    topics: tuple[str, ...]
    columns: StructType
    of_records: bool = True  # or found from them
    order: tuple[str, ...] = ("key", "time_us", "offset")

    @property
    def schema(self) -> StructType:
        """The columns as a reader sees them, those in the folders' names last."""
        origin = (ORIGIN,) if self.of_records else ()
        return joined(self.columns, *origin, PLACES)


TABLES = {
    table.name: table
    for table in (
        Table("reports", (topics.REPORTS,), REPORT_COLUMNS),
        Table("events", (f"{topics.EVENTS_PREFIX}*",), EVENT_COLUMNS),
        Table("alerts", topics.ALERTS, ALERT_COLUMNS),
        Table("deliveries", (topics.DELIVERIES,), DELIVERY_COLUMNS),
        Table(REJECTS, (), REJECT_COLUMNS),
        Table(LEDGER, (), LEDGER_COLUMNS, of_records=False, order=("message", "client")),
        Table(OUTCOMES, (), OUTCOME_COLUMNS, of_records=False, order=("message",)),
    )
}
TOPICS = tuple(topic for table in TABLES.values() for topic in table.topics)
