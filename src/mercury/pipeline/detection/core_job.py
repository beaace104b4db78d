"""A streaming job around a decision core: Spark condenses, the driver hosts the core.

A stateful operator in Python costs each batch two and a half times as much, and its first one
three times; what reaches the driver is small. After each batch the core's state is kept, so that a
batch that Spark repeats is judged from where it was, and gives the same alerts again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mercury.detection import Condition, Verdict
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.driver_state import DriverState
from mercury.pipeline.spark.sources import Start

log = logging.getLogger(__name__)

# When nothing waits to be read, all that was appended until so long ago has been read.
_SETTLED_S = 1.0
_SOURCE_S = 60.0
_FIRST_LOOK_S = 20.0


class Core(Protocol):
    """What a job decides with."""

    def take(self, rows: pa.Table) -> list[Verdict]: ...

    def advance(self, until_us: int) -> list[Verdict]: ...

    def conditions(self) -> list[Condition]: ...

    def snapshot(self) -> bytes: ...

    def restore(self, snapshot: bytes) -> None: ...


class CoreJob(ABC):
    """Wiring: source, core, sink, state."""

    name: str
    trigger: str | None = None  # None: a batch as soon as something is there

    def __init__(self, sink: AlertsSink, checkpoint: Path, now_us: Callable[[], int]) -> None:
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.query: StreamingQuery | None = None
        self.position = 0  # offsets read, over all topics and partitions
        self.lag = 0  # records on the bus that were not read yet, as of the last batch
        self._rows = f"{self.name}_rows"
        self._sink = sink
        self._checkpoint = checkpoint / self.name
        self._state = DriverState(self._checkpoint / "driver")
        self._now_us = now_us
        self._mutex = threading.Lock()
        self._core = self.new_core()
        self._batch: int | None = None  # the last one taken

    @abstractmethod
    def new_core(self) -> Core:
        """A core that has seen nothing."""

    @abstractmethod
    def frame(self, spark: SparkSession, bus: str, start: Start) -> DataFrame:
        """What the core is given, as a stream."""

    def start(self, spark: SparkSession, bus: str, start: Start = "earliest") -> StreamingQuery:
        """Begin to read the bus."""
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        writer = self.frame(spark, bus, start).writeStream.queryName(self.name)
        if self.trigger is not None:
            writer = writer.trigger(processingTime=self.trigger)
        self.query = (
            writer.foreachBatch(self.on_batch)
            .option("checkpointLocation", str(self._checkpoint / "spark"))
            .start()
        )
        self._await_source(self.query)
        return self.query

    def await_first_look(self) -> bool:
        """Wait until what was on the bus has been judged: whether that was anything."""
        deadline = time.monotonic() + _FIRST_LOOK_S
        query = self.query
        while query is not None and query.isActive and time.monotonic() < deadline:
            if self._batch is not None or query.status["message"].startswith("Waiting"):
                break
            time.sleep(0.02)
        return bool(self.counters[self._rows])

    def _await_source(self, query: StreamingQuery) -> None:
        """Wait for Spark to reach the source: two at once can miss each other's sockets."""
        deadline = time.monotonic() + _SOURCE_S
        while query.isActive and time.monotonic() < deadline:
            if query.status["message"] != "Initializing sources":
                return
            time.sleep(0.02)

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        """Judge what a batch brought."""
        rows = frame.toArrow()
        with self._mutex:
            if self._batch is None or batch != self._batch + 1:
                # The first since the start, or one that is done again.
                self._core = self.new_core()
                before = self._state.before(batch)
                if before is not None:
                    self._core.restore(before)
            self._tell(self._core.take(rows))
            self.counters[self._rows] += rows.num_rows
            self._batch = batch
            self._state.save(batch, self._core.snapshot())

    def tick(self) -> None:
        """Judge what has ended while nothing came; to be called now and then."""
        query = self.query
        if query is None:
            return
        self._note_progress(query)
        until_us = self._now_us() - int(_SETTLED_S * 1e6)
        status = query.status
        if status["isDataAvailable"] or status["isTriggerActive"]:
            return  # what is being read may belong to an interval that has ended
        if status["message"].startswith("Initializing"):
            return  # it has not looked yet
        with self._mutex:
            if self._batch is None and not self._resume():
                return
            self._tell(self._core.advance(until_us))

    def _resume(self) -> bool:
        """Go on from the last batch of an earlier run: whether there was one."""
        last = self._state.newest()
        if last is None:
            return False
        self._batch, snapshot = last
        self._core.restore(snapshot)
        return True

    def _note_progress(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        for source in progress.sources if progress else ():
            self.position = _total(source.endOffset)
            self.lag = max(0, _total(source.latestOffset) - self.position)

    def _tell(self, verdicts: list[Verdict]) -> None:
        for verdict in self._sink.alert(verdicts):
            self.counters["alerts"] += 1
            where = f"{verdict.centre.lat:.5f}, {verdict.centre.lon:.5f}"
            log.info("%s at %s: %s vehicles", verdict.kind, where, verdict.count)
        self.counters["conditions"] += self._sink.show(self.name, self._core.conditions())


def _total(offsets: str | None) -> int:
    """The sum of all offsets, as sources write them: by topic, or by topic and partition."""

    def add(part: object) -> int:
        if isinstance(part, dict):
            return sum(map(add, part.values()))
        return part if isinstance(part, int) else 0

    return add(json.loads(offsets)) if offsets else 0
