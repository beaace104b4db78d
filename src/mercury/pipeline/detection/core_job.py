"""A streaming job around a decision core: Spark aggregates, the driver runs the core.

A stateful operator in Python makes each batch two and a half times as slow, and its first one
three times; what reaches the driver is small. After each batch the core's state is stored, so that
a batch that Spark repeats starts from the same state and gives the same alerts.
"""

from __future__ import annotations

import logging
import math
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

from mercury.detection import DetectedCondition, Verdict
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.folders import write_whole
from mercury.pipeline.spark.query_listener import VISIBLE_AFTER_US, QueryState, start_query

log = logging.getLogger(__name__)

_FIRST_LOOK_S = 80.0  # enough for a slow machine
_KEPT = 3  # snapshots


class Core(Protocol):
    """The interface of a decision core."""

    def take(self, rows: pa.Table) -> list[Verdict]: ...

    def advance(self, until_us: int) -> list[Verdict]: ...

    def conditions(self) -> list[DetectedCondition]: ...

    def snapshot(self) -> bytes: ...

    def restore(self, snapshot: bytes) -> None: ...


class CoreJob(ABC):
    """Connects source, core, sink and state."""

    name: str
    trigger: str | None = None  # None: a batch as soon as something is there

    def __init__(self, new_core: Callable[[], Core], sink: AlertsSink, checkpoint: Path) -> None:
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.state = QueryState()
        self._rows = f"{self.name}_rows"
        self._sink = sink
        self._checkpoint = checkpoint / self.name
        self._snapshots = DriverState(self._checkpoint / "driver")
        self._mutex = threading.Lock()
        self._new_core = new_core  # makes an empty core
        self._core = new_core()
        self._batch: int | None = None  # the last one taken
        self._idle_us = 0  # all until then has been read and judged

    @abstractmethod
    def frame(self, spark: SparkSession, bus: str) -> DataFrame:
        """The core's input, as a stream."""

    def start(self, spark: SparkSession, bus: str) -> StreamingQuery:
        """Begin to read the bus."""
        frame = self.frame(spark, bus)
        query, self.state = start_query(
            frame, self.name, self.on_batch, self._checkpoint, self.trigger
        )
        return query

    def await_first_look(self) -> bool:
        """Wait until the backlog on the bus has been judged; returns whether there was any."""
        deadline = time.monotonic() + _FIRST_LOOK_S
        while time.monotonic() < deadline:
            if self._batch is not None or self.state.idle_us or self.state.ended:
                break
            time.sleep(0.02)
        return bool(self.counters[self._rows])

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        """Pass a batch to the core."""
        rows = frame.toArrow()
        with self._mutex:
            if self._batch is None or batch != self._batch + 1:
                # The first since the start, or a repeated one.
                self._core = self._new_core()
                if (last := self._snapshots.newest(batch)) is not None:
                    self._core.restore(last[1])
            self._publish(self._core.take(rows))
            self.counters[self._rows] += rows.num_rows
            self._batch = batch
            self._snapshots.save(batch, self._core.snapshot())

    def tick(self) -> None:
        """Judge intervals that ended without new records; to be called at intervals."""
        idle_us = self.state.idle_us
        if idle_us <= self._idle_us:
            return
        self._idle_us = idle_us
        with self._mutex:
            if self._batch is None and not self._resume():
                return
            self._publish(self._core.advance(idle_us - VISIBLE_AFTER_US))

    def _resume(self) -> bool:
        """Resume after the last batch of an earlier run; returns whether there was one."""
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


class DriverState:
    """Snapshots of a job's state, one after each batch, so that a batch can be repeated."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def newest(self, before: float = math.inf) -> tuple[int, bytes] | None:
        """The last batch before another that has a snapshot, and the snapshot."""
        batch = max((one for one in self._batches() if one < before), default=None)
        return None if batch is None else (batch, self._path(batch).read_bytes())

    def save(self, batch: int, snapshot: bytes) -> None:
        """Store the snapshot of a batch, atomically."""
        write_whole(self._path(batch), snapshot)
        for old in self._batches()[:-_KEPT]:
            self._path(old).unlink(missing_ok=True)

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.state"))

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch}.state"
