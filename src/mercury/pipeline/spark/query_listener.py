"""What Spark reports of its streaming queries, as plain attributes that are read without a call."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from mercury.pipeline.spark.session import first_line

# A trigger may miss records that are being appended when it runs.
VISIBLE_AFTER_US = 1_000_000


@dataclass(slots=True)
class QueryState:
    """One run of a query."""

    name: str = ""
    idle_us: int = 0  # the last trigger that found nothing to read began then
    batch_us: int = 0  # the last batch that is finished began then
    batch_rows: int = 0  # and read that many records
    position: int = 0  # offsets read, over all topics and partitions
    lag: int = 0  # records on the bus that were not read yet, as of the last batch
    ended: bool = False

    @property
    def reported(self) -> bool:
        """Whether a trigger has finished."""
        return bool(self.idle_us or self.batch_us or self.ended)


class QueryListener(StreamingQueryListener):
    """Follows all streaming queries of a session."""

    def __init__(self) -> None:
        self.failed_query: str | None = None  # the first that ended with an error
        self.failure = ""  # its error, one line
        self._states: defaultdict[UUID, QueryState] = defaultdict(QueryState)

    def state(self, run_id: str) -> QueryState:
        """The state of a run, kept up to date."""
        return self._states[UUID(run_id)]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._states[event.runId].name = event.name or ""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        state = self._states[progress.runId]
        state.batch_us = _micros(progress.timestamp)
        state.batch_rows = progress.numInputRows
        for source in progress.sources:
            state.position = _total(source.endOffset)
            state.lag = max(0, _total(source.latestOffset) - state.position)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._states[event.runId].idle_us = _micros(event.timestamp)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        state = self._states[event.runId]
        if event.exception and self.failed_query is None:
            self.failure = first_line(event.exception)
            self.failed_query = state.name
        state.ended = True


_listeners: WeakKeyDictionary[SparkSession, QueryListener] = WeakKeyDictionary()


def listener_of(spark: SparkSession) -> QueryListener:
    """The session's listener: one per session, since an event takes many calls to Java."""
    if spark not in _listeners:
        _listeners[spark] = QueryListener()
        spark.streams.addListener(_listeners[spark])
    return _listeners[spark]


def end_session(spark: SparkSession) -> None:
    """Stop Spark, without its long log about a listener that disconnects."""
    if (listener := _listeners.pop(spark, None)) is not None:
        spark.streams.removeListener(listener)
    spark.stop()


def start_query(
    frame: DataFrame,
    name: str,
    on_batch: Callable[[DataFrame, int], None],
    checkpoint: Path,
    trigger: str | None = None,
) -> tuple[StreamingQuery, QueryState]:
    """Run a query with a share of Spark for itself; its state is kept up to date.

    Arguments:
        trigger: interval of batches; None: as soon as there are records.
    """
    spark = frame.sparkSession
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    listener = listener_of(spark)
    writer = frame.writeStream.queryName(name).foreachBatch(on_batch)
    if trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    query = writer.option("checkpointLocation", str(checkpoint / "spark")).start()
    state = listener.state(query.runId)
    await_source(query, state)
    return query, state


def await_source(query: StreamingQuery, state: QueryState) -> None:
    """Wait until the query's source is open.

    An embedded source is a process of its own. While it starts, another that starts can miss its
    socket, and if the query is stopped, it leaves a traceback.
    """
    while not (query.status["isTriggerActive"] or state.reported) and query.isActive:
        time.sleep(0.02)


def _micros(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000) * 1000


def _total(offsets: str | None) -> int:
    """The sum of all offsets, as sources write them: by topic, or by topic and partition."""

    def add(part: object) -> int:
        if isinstance(part, dict):
            return sum(map(add, part.values()))
        return part if isinstance(part, int) else 0

    return add(json.loads(offsets)) if offsets else 0
