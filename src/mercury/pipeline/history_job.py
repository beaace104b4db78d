"""History: reports, events, alerts and deliveries as Parquet tables, each record once.

What has been stored is known to the folder itself: a batch that Spark does again after a crash,
or all batches when its checkpoint is lost, add only what is not there yet.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from mercury.pipeline.history_compaction import compact
from mercury.pipeline.history_files import HistoryFolder
from mercury.pipeline.history_journal import Marks, locked
from mercury.pipeline.history_tables import (
    REJECTS,
    TABLES,
    TOPICS,
    rejected,
    sorted_out,
    spans,
    stored,
)
from mercury.pipeline.places import placed
from mercury.pipeline.sources import Start, read_batch, read_stream

log = logging.getLogger(__name__)

NAME = "history"
INTERVAL_S = 10.0
# A backlog is taken in such portions: what a driver of 2 GB holds easily.
BATCH_RECORDS = 1_000_000
# A tile gets a file a batch: every so many batches they are merged where they have become many.
COMPACT_BATCHES = 60
COMPACT_FILES = 30
_BATCH = "batch"


class HistoryJob:
    """Wiring: source, tables, folder."""

    def __init__(
        self,
        folder: Path,
        checkpoint: Path,
        *,
        interval_s: float = INTERVAL_S,
        batch_records: int = BATCH_RECORDS,
        compact_batches: int = COMPACT_BATCHES,
    ) -> None:
        self.folder = HistoryFolder(folder)
        self._checkpoint = checkpoint / NAME
        self._interval_s = interval_s
        self._batch_records = batch_records
        self._compact_batches = compact_batches
        self._run = uuid.uuid4().hex[:8]
        self._taken = 0  # batches of this run
        self._held = ExitStack()
        self._query: StreamingQuery | None = None
        self.counters: Counter[str] = Counter()  # rows by table
        self.rejected: Counter[str] = Counter()  # by reason

    def start(self, spark: SparkSession, bus: str, start: Start = "earliest") -> StreamingQuery:
        """Begin to store what is on the bus and what comes."""
        refusal = f"another job stores history in {self.folder.path}"
        self._held.enter_context(locked(self.folder.path, NAME, refusal=refusal))
        self.folder.drop_staging(_BATCH)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", NAME)
        records = read_stream(
            spark, bus, list(TOPICS), start=start, max_records=self._batch_records
        )
        self._query = (
            records.writeStream.queryName(NAME)
            .foreachBatch(self.on_batch)
            .option("checkpointLocation", str(self._checkpoint / "spark"))
            .trigger(processingTime=f"{self._interval_s} seconds")
            .start()
        )
        return self._query

    def stop(self) -> None:
        """End, and let another job have the folder."""
        if self._query is not None:
            self._query.stop()
        self._held.close()

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        rows, bad = store(frame, self.folder, f"{batch:09}-{self._run}")
        self.counters.update(rows)
        self.rejected.update(bad)
        self._taken += 1
        if self._taken % self._compact_batches == 0:
            try:
                compact(frame.sparkSession, self.folder, least_files=COMPACT_FILES)
            except Exception as error:  # what is stored stays readable, only less quickly
                log.warning("history was not compacted: %s", error)


def store_batch(spark: SparkSession, bus: str, folder: Path) -> Counter[str]:
    """Store all that is on the bus now and is not stored yet; how many rows each table got."""
    place = HistoryFolder(folder)
    refusal = f"another job stores history in {place.path}"
    with locked(place.path, NAME, refusal=refusal):
        place.drop_staging(_BATCH)
        rows, _ = store(read_batch(spark, bus, list(TOPICS)), place, f"all-{uuid.uuid4().hex[:8]}")
        return rows


def store(
    records: DataFrame, folder: HistoryFolder, label: str
) -> tuple[Counter[str], Counter[str]]:
    """Add records to the tables: all or none of them, and only those that are not there yet."""
    with ExitStack() as held:
        records = _held(placed(records), held)
        tables = _decoded(records, held)
        found = spans(tables).collect()
        marks = folder.marks()
        if any(_overlaps(span, marks) for span in found):
            tables = _decoded(records.where(~_stored_already(marks)), held)
            found = spans(tables).collect()
        if not found:
            return Counter(), Counter()
        rows: Counter[str] = Counter()
        bad: Counter[str] = Counter()
        for span in found:
            rows[REJECTS if span.problem else span.table] += span.rows
            if span.problem:
                bad[span.problem] += span.rows
        # If this fails, the staging stays: the journal may need it. The next start removes it.
        staging = folder.new_staging(_BATCH)
        for name in rows:
            table = rejected(tables) if name == REJECTS else stored(TABLES[name], tables[name])
            folder.stage(table, staging, name)
        folder.add(staging, label, _marks(found))
        return rows, bad


def _decoded(records: DataFrame, held: ExitStack) -> dict[str, DataFrame]:
    """The tables' rows; what Python has decoded is not decoded again."""
    tables = sorted_out(records)
    return tables | {name: _held(tables[name], held) for name in ("events", "alerts")}


def _held(frame: DataFrame, held: ExitStack) -> DataFrame:
    frame = frame.persist()
    held.callback(frame.unpersist)
    return frame


def _marks(found: Sequence[Row]) -> Marks:
    marks: Marks = {}
    for span in found:
        offset, time_us = marks.get(_name(span), (-1, 0))
        marks[_name(span)] = (max(offset, span.last), max(time_us, span.last_us))
    return marks


def _overlaps(span: Row, marks: Marks) -> bool:
    # By time, too: the offsets of a new bus begin again, but its records are younger.
    offset, time_us = marks.get(_name(span), (-1, 0))
    return bool(span.first <= offset and span.first_us <= time_us)


def _stored_already(marks: Marks) -> Column:
    found = F.lit(False)
    for name, (offset, time_us) in marks.items():
        topic, _, partition = name.rpartition("/")
        found = found | (
            (F.col("topic") == topic)
            & (F.col("partition") == int(partition))
            & (F.col("offset") <= offset)
            & (F.col("time_us") <= time_us)
        )
    return found


def _name(span: Row) -> str:
    return f"{span.topic}/{span.partition}"
