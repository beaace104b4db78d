"""A streaming job around a decision core: Spark condenses, the driver hosts the core.

A stateful operator in Python costs each batch two and a half times as much, and its first one
three times; what reaches the driver is small. After each batch the core's state is kept, so that a
batch that Spark repeats is judged from where it was, and gives the same alerts again.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mercury.detection import Condition, Verdict
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.driver_state import DriverState
from mercury.pipeline.spark.query_listener import QueryState, listener_of
from mercury.pipeline.spark.sources import Start

log = logging.getLogger(__name__)

# What is being appended when a trigger looks for it may be missed by that trigger.
_SETTLED_US = 1_000_000
# Two sources that start at once can miss each other's sockets: a slow machine is waited for.
_FIRST_LOOK_S = 80.0


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

    def __init__(self, sink: AlertsSink, checkpoint: Path) -> None:
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.state = QueryState()
        self._rows = f"{self.name}_rows"
        self._sink = sink
        self._checkpoint = checkpoint / self.name
        self._snapshots = DriverState(self._checkpoint / "driver")
        self._mutex = threading.Lock()
        self._core = self.new_core()
        self._batch: int | None = None  # the last one taken
        self._idle_us = 0  # all until then has been read and judged

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
        listener = listener_of(spark)
        query = (
            writer.foreachBatch(self.on_batch)
            .option("checkpointLocation", str(self._checkpoint / "spark"))
            .start()
        )
        self.state = listener.state(query.runId)
        return query

    def await_first_look(self) -> bool:
        """Wait until what was on the bus has been judged: whether that was anything."""
        deadline = time.monotonic() + _FIRST_LOOK_S
        while time.monotonic() < deadline:
            if self._batch is not None or self.state.idle_us or self.state.ended:
                break
            time.sleep(0.02)
        return bool(self.counters[self._rows])

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        """Judge what a batch brought."""
        rows = frame.toArrow()
        with self._mutex:
            if self._batch is None or batch != self._batch + 1:
                # The first since the start, or one that is done again.
                self._core = self.new_core()
                before = self._snapshots.before(batch)
                if before is not None:
                    self._core.restore(before)
            self._publish(self._core.take(rows))
            self.counters[self._rows] += rows.num_rows
            self._batch = batch
            self._snapshots.save(batch, self._core.snapshot())

    def tick(self) -> None:
        """Judge what has ended while nothing came; to be called now and then."""
        idle_us = self.state.idle_us
        if idle_us <= self._idle_us:
            return
        self._idle_us = idle_us
        with self._mutex:
            if self._batch is None and not self._resume():
                return
            self._publish(self._core.advance(idle_us - _SETTLED_US))

    def _resume(self) -> bool:
        """Go on from the last batch of an earlier run: whether there was one."""
        last = self._snapshots.newest()
        if last is None:
            return False
        self._batch, snapshot = last
        self._core.restore(snapshot)
        return True

    def _publish(self, verdicts: list[Verdict]) -> None:
        for verdict in self._sink.alert(verdicts):
            self.counters["alerts"] += 1
            where = f"{verdict.centre.lat:.5f}, {verdict.centre.lon:.5f}"
            log.info("%s at %s: %s vehicles", verdict.kind, where, verdict.count)
        self.counters["conditions"] += self._sink.show(self.name, self._core.conditions())
