"""Spark reads the embedded bus: a Python data source, for streams and for batches.

The driver asks for the offsets, the workers read the files: both on the bus's machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from mercury.bus.embedded.record_columns import Blobs, RecordColumns
from mercury.bus.embedded.record_reader import RecordReader
from mercury.pipeline.spark.fix_columns import FIX_BYTES, WITH_FIX, fix_columns
from mercury.wire.records import POSITION

FORMAT = "mercury"
# Records of a topic that one task reads at most; more are shared among tasks.
TASK_RECORDS = 100_000
_ARROW = to_arrow_schema(WITH_FIX)

Offsets = dict[str, int]  # topic -> the offset to read next


class EmbeddedSource(DataSource):
    """Options `path`, `topics` (with commas), `maxRecords`, `values`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return WITH_FIX

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.options)


@dataclass(frozen=True)
class Span(InputPartition):
    """The records that one task reads."""

    topic: str
    begin: int
    end: int


@lru_cache(4)  # a worker serves many tasks
def _open(path: str) -> RecordReader:
    return RecordReader(path)


def _to_arrow(topic: str, columns: RecordColumns, *, values: bool) -> pa.RecordBatch:
    """Records as Arrow columns, with their senders' positions."""
    count = len(columns)
    positions = columns.header(POSITION, FIX_BYTES)
    known = positions.sizes == FIX_BYTES
    _, fixes = positions.where(known).joined()
    arrays = [
        pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [topic]).cast(pa.string()),
        pa.array(columns.partitions),
        pa.array(columns.offsets),
        pa.array(columns.times_us),
        _binary(columns.keys),
        _binary(positions),
        _binary(columns.values) if values else pa.nulls(count, pa.binary()),
        *fix_columns(fixes, known),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _binary(blobs: Blobs) -> pa.Array:
    bounds, data = blobs.joined()
    known = np.packbits(blobs.sizes >= 0, bitorder="little")
    buffers = [pa.py_buffer(part) for part in (known, bounds, data)]
    return pa.Array.from_buffers(pa.binary(), len(blobs.sizes), buffers)


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["path"]
        self._topics = tuple(options["topics"].split(","))
        self._max_records = int(options.get("maxRecords", 0))
        self._values = options.get("values", "true") == "true"

    def _begins(self) -> Offsets:
        return _open(self._path).begins(self._topics)

    def _ends(self) -> Offsets:
        return _open(self._path).ends(self._topics)

    def _spans(self, begin: Offsets, end: Offsets) -> list[Span]:
        return [
            Span(topic, at, min(at + TASK_RECORDS, stop))
            for topic, stop in end.items()
            for at in range(begin.get(topic, 1), stop, TASK_RECORDS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Span):
            return  # Spark's way to plan a batch without records
        topic = partition.topic
        for columns in _open(self._path).read(topic, partition.begin, partition.end):
            yield _to_arrow(topic, columns, values=self._values)


class _BatchReader(_Options, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self._spans(self._begins(), self._ends())


class _StreamReader(_Options, DataSourceStreamReader):
    def initialOffset(self) -> Offsets:
        return self._begins()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = self._ends()
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
        return ReadMaxRows(self._max_records) if self._max_records else ReadAllAvailable()

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return self._spans(start, end)

    def stop(self) -> None:
        # Spark ends a source by hanging up, also amid an answer. PySpark would send that as an
        # error to who has gone, and print the traceback of a broken pipe. It serves one source:
        # it just ends.
        if isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            os._exit(0)
