"""History: reports, events, alerts and deliveries as Parquet tables, each record once.

The folder itself records what has been stored: a batch that Spark repeats after a crash, or all
batches when its checkpoint is lost, add only what is missing.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mercury.pipeline.history.compaction import compact
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.journal import Offsets, locked
from mercury.pipeline.history.tables import REJECTS, TOPICS
from mercury.pipeline.history.writing import WRITTEN, write
from mercury.pipeline.spark.fix_columns import with_fix
from mercury.pipeline.spark.query_listener import VISIBLE_AFTER_US, QueryState, start_query
from mercury.pipeline.spark.sources import read_stream

log = logging.getLogger(__name__)

NAME = "history"
INTERVAL_S = 10.0
# Records per batch of a backlog: a driver with 2 GB holds them easily.
BATCH_RECORDS = 1_000_000
# A tile gets a file a batch: after this many batches they are merged where they have become many.
COMPACT_BATCHES = 60
COMPACT_FILES = 30
_BATCH = "batch"
# Kafka shares out a batch's limit among partitions, and may stay a little below it.
_FULL = 0.9


class HistoryJob:
    """Connects source, tables and folder."""

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
        self.state = QueryState()
        self._until_us = 0
        self.counters: Counter[str] = Counter()  # rows by table
        self.rejected: Counter[str] = Counter()  # by reason

    def start(self, spark: SparkSession, bus: str) -> StreamingQuery:
        """Start to store the bus's records, old and new."""
        refusal = f"another job stores history in {self.folder.path}"
        self._held.enter_context(locked(self.folder.path, NAME, refusal=refusal))
        self.folder.drop_staging(_BATCH)
        records = read_stream(spark, bus, TOPICS, max_records=self._batch_records)
        trigger = f"{self._interval_s} seconds"
        self._query, self.state = start_query(
            records, NAME, self.on_batch, self._checkpoint, trigger
        )
        return self._query

    def stop(self) -> None:
        """Stop, and release the folder for another job."""
        if self._query is not None:
            self._query.stop()
        self._held.close()

    def stored_until_us(self) -> int:
        """The time up to which all records of the bus are stored."""
        state = self.state
        # A batch below the limit had all records up to its beginning.
        whole = state.batch_rows < _FULL * self._batch_records
        looked_us = max(state.idle_us, state.batch_us if whole else 0)
        self._until_us = max(self._until_us, looked_us - VISIBLE_AFTER_US)
        return self._until_us

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        rows, bad = store(frame, self.folder, f"{batch:09}-{self._run}")
        self.counters.update(rows)
        self.rejected.update(bad)
        self._taken += 1
        if self._taken % self._compact_batches == 0:
            try:
                compact(frame.sparkSession, self.folder, least_files=COMPACT_FILES)
            except Exception as error:  # the tables stay readable, only slower
                log.warning("history was not compacted: %s", error)


def store(
    records: DataFrame, folder: HistoryFolder, label: str
) -> tuple[Counter[str], Counter[str]]:
    """Add records to the tables, atomically, and only those that are not stored yet."""
    # If this fails, the staging stays: the journal may need it. The next start removes it.
    staging = folder.new_staging(_BATCH)
    work = partial(write, str(staging), folder.offsets())
    written = with_fix(records).mapInArrow(work, WRITTEN).toArrow().to_pylist()
    rows: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    offsets: Offsets = {}
    for one in written:
        if one["file"] is not None:
            continue
        rows[REJECTS if one["problem"] else one["table"]] += one["rows"]
        if one["problem"]:
            bad[one["problem"]] += one["rows"]
        name = f"{one['topic']}/{one['partition']}"
        offset, time_us = offsets.get(name, (-1, 0))
        offsets[name] = (max(offset, one["last"]), max(time_us, one["last_us"]))
    folder.add(staging, [one["file"] for one in written if one["file"] is not None], label, offsets)
    return rows, bad
