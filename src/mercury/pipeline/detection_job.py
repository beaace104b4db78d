"""Detection (Mercury §4.1, §4.3): events of all vehicles, in bins, judged by predicates.

Spark reads, decodes and condenses; the decision is the core's, `mercury.detection`, which the
driver hosts. A stateful operator in Python costs each batch two and a half times as much, and its
first one three times.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mercury.detection import (
    KindBins,
    KindRule,
    Observation,
    Verdict,
    restore_bins,
    snapshot_bins,
)
from mercury.model import topics
from mercury.pipeline.alerts_sink import AlertsSink
from mercury.pipeline.driver_state import DriverState
from mercury.pipeline.sources import Start, read_stream
from mercury.pipeline.transforms import events

log = logging.getLogger(__name__)

NAME = "detection"
_COLUMNS = ("time_us", "id", "reporter", "lat", "lon", "speed_mps", "heading_deg")
_LENGTH = struct.Struct("<HI")
# When nothing waits to be read, all that was appended until so long ago has been read.
_SETTLED_S = 1.0


class Detection:
    """All kinds' bins; batches in, alerts out."""

    def __init__(self, rules: Iterable[KindRule]) -> None:
        self.bins = {rule.kind: KindBins(rule) for rule in rules}
        self.dropped: Counter[str] = Counter()

    def take(self, rows: pa.Table) -> list[Verdict]:
        """Judge a batch of events (the schema `EVENT`)."""
        found: dict[str, list[Observation]] = {}
        kinds = rows.column("kind").to_pylist()
        problems = rows.column("problem").to_pylist()
        columns = [rows.column(name).to_pylist() for name in _COLUMNS]
        for kind, problem, row in zip(kinds, problems, zip(*columns, strict=True), strict=True):
            if problem is not None:
                self.dropped[problem] += 1
            elif kind not in self.bins:
                self.dropped["no-rule"] += 1
            else:
                found.setdefault(kind, []).append(Observation(*row))
        return [
            verdict
            for kind, observations in sorted(found.items())
            for verdict in self.bins[kind].add(observations)
        ]

    def advance(self, until_us: int) -> list[Verdict]:
        """Judge the intervals that have ended."""
        return [verdict for one in self.bins.values() for verdict in one.advance(until_us)]

    def snapshot(self) -> bytes:
        parts = []
        for kind, bins in sorted(self.bins.items()):
            name, state = kind.encode(), snapshot_bins(bins)
            parts += [_LENGTH.pack(len(name), len(state)), name, state]
        return b"".join(parts)

    def restore(self, snapshot: bytes) -> None:
        """Go on from a snapshot; kinds that have a rule no more are forgotten."""
        at = 0
        while at < len(snapshot):
            name_size, state_size = _LENGTH.unpack_from(snapshot, at)
            at += _LENGTH.size
            kind = snapshot[at : at + name_size].decode()
            at += name_size
            if kind in self.bins:
                state = snapshot[at : at + state_size]
                self.bins[kind] = restore_bins(self.bins[kind].rule, state)
            at += state_size


class DetectionJob:
    """Wiring: source, core, sink, state."""

    def __init__(
        self,
        rules: Iterable[KindRule],
        sink: AlertsSink,
        checkpoint: Path,
        now_us: Callable[[], int],
    ) -> None:
        self._rules = tuple(rules)
        self._detection = Detection(self._rules)
        self._sink = sink
        self._checkpoint = checkpoint / NAME
        self._state = DriverState(self._checkpoint / "driver")
        self._now_us = now_us
        self._mutex = threading.Lock()
        self._batch = -1  # the last one taken
        self._query: StreamingQuery | None = None
        self.counters: Counter[str] = Counter()

    @property
    def dropped(self) -> Counter[str]:
        return self._detection.dropped

    def start(self, spark: SparkSession, bus: str, start: Start = "earliest") -> StreamingQuery:
        """Begin to read events from the bus."""
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", NAME)
        records = read_stream(spark, bus, [f"{topics.EVENTS_PREFIX}*"], start=start)
        self._query = (
            events(records)
            .writeStream.queryName(NAME)
            .foreachBatch(self.on_batch)
            .option("checkpointLocation", str(self._checkpoint / "spark"))
            .start()
        )
        return self._query

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        rows = frame.toArrow()
        with self._mutex:
            if batch != self._batch + 1 or self._batch < 0:
                # The first since the start, or one that is done again.
                self._detection = Detection(self._rules)
                before = self._state.before(batch)
                if before is not None:
                    self._detection.restore(before)
            self._tell(self._detection.take(rows))
            self._batch = batch
            self._state.save(batch, self._detection.snapshot())
            self.counters["events"] += rows.num_rows

    def tick(self) -> None:
        """Judge intervals that ended while nothing came; to be called now and then."""
        query = self._query
        if query is None or self._batch < 0:
            return
        until_us = self._now_us() - int(_SETTLED_S * 1e6)
        status = query.status
        if status["isDataAvailable"] or status["isTriggerActive"]:
            return  # what is being read may belong to an interval that has ended
        with self._mutex:
            self._tell(self._detection.advance(until_us))

    def _tell(self, verdicts: list[Verdict]) -> None:
        for verdict in self._sink.alert(verdicts):
            self.counters["alerts"] += 1
            log.info("%s at %s: %s", verdict.kind, verdict.centre, verdict.values)
        changed = self._sink.show(
            condition for bins in self._detection.bins.values() for condition in bins.conditions()
        )
        self.counters["conditions"] += changed
