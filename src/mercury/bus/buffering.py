"""Collects appended records into batches: those of one event-loop iteration go together."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod

from mercury.bus.api import Headers
from mercury.bus.event_loop import running_loop
from mercury.bus.grouping import check_topic
from mercury.model.errors import BusError, BusFullError, BusUnavailableError

# A batch holds at most about this much, so that no writer delays the others for long.
BATCH_RECORDS = 8192
BATCH_BYTES = 8 * 1024**2
# How much is buffered while the bus cannot be written, before append raises.
BUFFER_BYTES = 64 * 1024**2
RETRY_S = 0.25
RECORD_OVERHEAD_BYTES = 64

# By topic, the records that wait to be written: key, headers as the bus stores them, value.
Batch = dict[str, list[tuple[bytes, Headers | bytes, bytes]]]


class RecordBuffer(ABC):
    """Takes records in; subclasses write them when a batch is complete."""

    def __init__(self, name: str, prefix: str = "") -> None:
        self.name = name  # for error messages
        self._prefix = prefix  # of topics
        self.mutex = threading.RLock()  # guards the buffer and everything a flush touches
        self.closed = False
        self._batch: Batch = {}
        self._batch_records = 0
        self._batch_bytes = 0
        self._unacknowledged_bytes = 0  # of earlier batches
        self._scheduled_in: asyncio.AbstractEventLoop | None = None
        self._failure: BusError | None = None  # of a write that no caller awaited
        self._no_headers = self._pack_headers(())

    @staticmethod
    @abstractmethod
    def _pack_headers(headers: Headers) -> Headers | bytes:
        """Check headers and bring them into the form that is stored."""

    @abstractmethod
    def _tick(self) -> None:
        """Write what was appended during the last event-loop iteration."""

    @abstractmethod
    def _write_full_batch(self) -> None:
        """Write the batch, which has reached its largest size."""

    def append(self, topic: str, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        # What cannot be written is refused here: inside a batch it would block all others.
        if type(value) is not bytes or type(key) is not bytes:
            value, key = _as_bytes(value), _as_bytes(key)
        size = len(value) + len(key) + RECORD_OVERHEAD_BYTES
        packed = self._no_headers
        if headers:
            packed = self._pack_headers(headers)
            size += len(packed) if type(packed) is bytes else sum(len(one[1]) for one in headers)
        with self.mutex:
            if self.closed or self._failure is not None:
                self.check_open()
                self._raise_failure()
            records = self._batch.get(topic)
            if records is None:
                check_topic(self._prefix + topic)
                records = self._batch[topic] = []
            if self._unacknowledged_bytes + self._batch_bytes + size > BUFFER_BYTES:
                waiting = (self._unacknowledged_bytes + self._batch_bytes) >> 20
                raise BusFullError(
                    f"{waiting} MiB of records wait because {self.name} does not take them; "
                    "no more are accepted until it does"
                )
            records.append((key, packed, value))
            self._batch_records += 1
            self._batch_bytes += size
            if self._batch_records >= BATCH_RECORDS or self._batch_bytes >= BATCH_BYTES:
                self._write_full_batch()
            if self._scheduled_in is None or self._scheduled_in.is_closed():
                self._schedule()

    def _schedule(self) -> None:
        loop = running_loop()
        if loop is not None:  # without one the caller flushes, or the batch grows full
            self._scheduled_in = loop
            loop.call_soon(self._tick)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def check_open(self) -> None:
        if self.closed:
            raise BusUnavailableError(f"{self.name} is closed")


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a record's key and value are bytes, not {type(data).__name__}")
