"""Spark reads the embedded bus: a Python data source, for streams and for batches.

The driver asks for the offsets, the workers read the files: both on the bus's machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from mercury.bus.api import Record
from mercury.bus.record_reader import RecordReader
from mercury.pipeline.schemas import RECORD
from mercury.wire.records import POSITION

FORMAT = "mercury"
# One task reads at most so many records of a topic; more are shared among tasks.
TASK_RECORDS = 100_000
_ARROW = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("position", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)

Offsets = dict[str, int]  # topic -> the offset to read next


class EmbeddedSource(DataSource):
    """`format("mercury")`; options `path`, `topics` (with commas), `start`, `maxRecords`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.options)


class Span(InputPartition):
    """The records that one task reads."""

    def __init__(self, path: str, topic: str, begin: int, end: int) -> None:
        super().__init__(None)
        self.path, self.topic, self.begin, self.end = path, topic, begin, end


@lru_cache(4)  # a worker serves many tasks
def _open(path: str) -> RecordReader:
    return RecordReader(path)


def _read(span: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(span, Span):
        return  # Spark's way to plan a batch without records
    for records in _open(span.path).read(span.topic, span.begin, span.end):
        yield to_arrow(records)


def to_arrow(records: Sequence[Record]) -> pa.RecordBatch:
    """Records as columns."""
    topics, partitions, offsets, times, keys, headers, values = zip(*records, strict=True)
    columns = [
        pa.array(topics, pa.string()),
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array([_position(one) for one in headers], pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _position(headers: tuple[tuple[str, bytes], ...]) -> bytes | None:
    for name, value in headers:
        if name == POSITION:
            return value
    return None


def _spans(path: str, begin: Offsets, end: Offsets) -> list[Span]:
    return [
        Span(path, topic, at, min(at + TASK_RECORDS, stop))
        for topic, stop in end.items()
        for at in range(begin.get(topic, 1), stop, TASK_RECORDS)
    ]


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self.path = options["path"]
        self.topics = tuple(options["topics"].split(","))
        self.start = options.get("start", "latest")
        self.max_records = int(options.get("maxRecords", 0))


class _BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = _Options(options)

    def partitions(self) -> Sequence[InputPartition]:
        chosen = self._options
        reader = _open(chosen.path)
        return _spans(chosen.path, reader.begins(chosen.topics), reader.ends(chosen.topics))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = _Options(options)

    def initialOffset(self) -> Offsets:
        chosen = self._options
        reader = _open(chosen.path)
        earliest = chosen.start == "earliest"
        return reader.begins(chosen.topics) if earliest else reader.ends(chosen.topics)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = _open(self._options.path).ends(self._options.topics)
        if not isinstance(limit, ReadMaxRows):
            return ends
        left = limit.max_rows
        # A topic that is not in `start` is younger than the query, and read whole.
        for topic, end in ends.items():
            begin = start.get(topic, 1)
            ends[topic] = begin + min(end - begin, left)
            left -= ends[topic] - begin
        return ends

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_records
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offsets:
        return _open(self._options.path).ends(self._options.topics)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return _spans(self._options.path, start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition)
