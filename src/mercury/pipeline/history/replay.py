"""Replay: appends stored records to a bus again, at their original speed or another.

Values, keys and ids are unchanged; headers are made as the original writers make them. Records
that have expired are appended too: their readers decide.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.bus import Bus
from mercury.bus.api import Headers
from mercury.model import topics
from mercury.model.errors import PacketError
from mercury.pipeline.history.days import days_of
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.queries import within
from mercury.pipeline.history.tables import TABLES
from mercury.wire import parse
from mercury.wire.records import POSITION, envelope_route

# Inputs of the system; alerts follow from them.
INPUTS = (topics.REPORTS, f"{topics.EVENTS_PREFIX}*")
_COLUMNS = ("time_us", "topic", "key", "position", "value")
_ORDER = ("time_us", "topic", "offset", "partition")
# At full speed this many records become durable together.
_FLUSH_RECORDS = 4096
# Records so close in time are appended together.
_GRAIN_S = 0.002


class Stored(NamedTuple):
    """A record to append again."""

    time_us: int
    topic: str
    key: bytes
    position: bytes | None
    value: bytes

    @property
    def headers(self) -> Headers:
        """The headers as adapters and services make them."""
        place: Headers = ((POSITION, self.position),) if self.position is not None else ()
        if not self.topic.startswith(("events.", "alerts.")):
            return place
        try:
            return (envelope_route(parse(self.value)), *place)
        except PacketError:
            return place


def recorded(
    spark: SparkSession,
    folder: HistoryFolder,
    names: tuple[str, ...] = INPUTS,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """The stored records of topics and a time, also undecodable ones, in their order."""
    days = days_of(from_us, to_us)
    parts = [
        within(folder.read(spark, table, *days), from_us, to_us)
        .where(_of_topics(names))
        .select(*_COLUMNS, "offset", "partition")
        for table, one in TABLES.items()
        if one.of_records
    ]
    return reduce(DataFrame.unionByName, parts).orderBy(*_ORDER).select(*_COLUMNS)


def _of_topics(names: tuple[str, ...]) -> Column:
    """Whether a record is of one of these topics; `.*` ends a prefix."""
    topic = F.col("topic")
    found = F.lit(False)
    for name in names:
        found |= topic.startswith(name[:-1]) if name.endswith(".*") else topic == name
    return found


def in_order(rows: DataFrame) -> Iterator[Stored]:
    """Sorted rows one by one, without loading them all."""
    packed = rows.mapInArrow(_pack, "rows binary")
    for row in packed.toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row.rows) as reader:
            for batch in reader:
                columns = [batch.column(name).to_pylist() for name in _COLUMNS]
                yield from map(Stored._make, zip(*columns, strict=True))


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})


class Replay:
    """Appends records to a bus; `speed` 1 is the original speed, infinity has no pauses."""

    def __init__(
        self,
        bus: Bus,
        speed: float = 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        progress: Callable[[int, int], None] = lambda count, time_us: None,
    ) -> None:
        self._bus = bus
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._progress = progress
        self.count = 0

    def run(self, records: Iterable[Stored]) -> int:
        """Append all records; returns how many. They are durable also if it is interrupted."""
        begin_s, first_us = 0.0, None
        try:
            for record in records:
                if first_us is None:
                    begin_s, first_us = self._clock(), record.time_us
                if self._speed != math.inf:
                    due_s = begin_s + (record.time_us - first_us) / 1e6 / self._speed
                    self._wait_until(due_s, record)
                self._bus.append(record.topic, record.value, record.key or b"", record.headers)
                self.count += 1
                if self.count % _FLUSH_RECORDS == 0:
                    self._flush(record)
        finally:
            self._bus.flush_now()
        if first_us is not None:
            self._progress(self.count, record.time_us)
        return self.count

    def _wait_until(self, due_s: float, record: Stored) -> None:
        left_s = due_s - self._clock()
        if left_s > _GRAIN_S:
            self._flush(record)
            self._sleep(max(due_s - self._clock(), 0.0))

    def _flush(self, record: Stored) -> None:
        self._bus.flush_now()
        self._progress(self.count, record.time_us)
