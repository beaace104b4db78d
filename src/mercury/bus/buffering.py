"""Group commit: what is appended within one event-loop iteration is written together."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mercury.bus.api import Headers
from mercury.bus.grouping import check_topic
from mercury.model.errors import BusError, BusFullError, BusUnavailableError

if TYPE_CHECKING:
    from mercury.bus.group_consumer import GroupConsumer

# One transaction holds at most about this much, so that no writer keeps the others waiting long.
BATCH_RECORDS = 8192
BATCH_BYTES = 8 * 1024**2
# What may wait in memory while the bus cannot be written, before append refuses.
BUFFER_BYTES = 64 * 1024**2
RETRY_S = 0.25
MARK_DELAY_S = 0.02
RECORD_OVERHEAD_BYTES = 64


# A record that waits for the next flush: key, headers as the bus stores them, value.
Pending = tuple[bytes, Headers | bytes, bytes]
Batch = dict[str, list[Pending]]


class BufferedBus(ABC):
    """Buffers records and marks, and flushes them once per event-loop iteration."""

    _NO_HEADERS: Headers | bytes = ()

    def __init__(self, name: str) -> None:
        self.name = name  # for error messages
        self.mutex = threading.RLock()  # guards the buffer and everything a flush touches
        self.closed = False
        self._batch: Batch = {}
        self._batch_records = 0
        self._batch_bytes = 0
        self._committing: set[GroupConsumer] = set()  # consumers with marks to write
        self._scheduled_in: asyncio.AbstractEventLoop | None = None
        self._waiting: list[asyncio.Future[None]] = []  # flush() calls
        self._later_in: asyncio.AbstractEventLoop | None = None  # has a timer to flush
        self._commits_due = False  # marks have waited long enough
        self._failure: BusError | None = None  # of a flush that nobody waited for

    @abstractmethod
    def _write(self, batch: Batch, committing: set[GroupConsumer]) -> None:
        """Make records, then marks, durable.

        A topic whose records are written is taken out of the batch, so that after a failure only
        the rest is tried again.
        """

    @abstractmethod
    def _pack_headers(self, headers: Headers) -> Headers | bytes:
        """Check headers and bring them into the form that is stored."""

    def append(self, topic: str, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        # Whatever cannot be written is refused here: inside a batch it would block all others.
        if type(value) is not bytes or type(key) is not bytes:
            value, key = _as_bytes(value), _as_bytes(key)
        packed = self._pack_headers(headers) if headers else self._NO_HEADERS
        with self.mutex:
            if self.closed or self._failure is not None:
                self._check_open()
                self._raise_failure()
            records = self._batch.get(topic)
            if records is None:
                records = self._batch[check_topic(topic)] = []
            size = len(value) + len(key) + RECORD_OVERHEAD_BYTES
            if self._batch_bytes + size > BUFFER_BYTES:
                raise BusFullError(
                    f"{self._batch_records} records wait because {self.name} cannot be written; "
                    "no more are accepted until it can"
                )
            records.append((key, packed, value))
            self._batch_records += 1
            self._batch_bytes += size
            if self._batch_records >= BATCH_RECORDS or self._batch_bytes >= BATCH_BYTES:
                self._flush_full_batch()
            if self._scheduled_in is None or self._scheduled_in.is_closed():
                self._schedule()

    def flush_now(self) -> None:
        with self.mutex:
            self._check_open()
            self._failure = None  # what failed is tried again here, and raises here
            self._flush()

    async def flush(self) -> None:
        with self.mutex:
            self._check_open()
            self._failure = None  # what failed is tried again, and raises here
            if not self._batch and not self._committing:
                return
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()
            if self._scheduled_in is not None and self._scheduled_in is not loop:
                self._scheduled_in = None  # that loop may never turn again
            self._waiting.append(done)
            if self._scheduled_in is None:
                self._schedule()
        await done

    def enqueue_commit(self, consumer: GroupConsumer) -> None:
        """Write the marks of a consumer with the next flush that is asked for, or a little later.

        A mark costs as much as a batch of records, and losing one means no more than reading
        again: many batches share one.
        """
        with self.mutex:
            self._committing.add(consumer)
            self._schedule_later(MARK_DELAY_S)

    def unmark(self, consumer: GroupConsumer) -> None:
        with self.mutex:
            self._committing.discard(consumer)

    def _schedule(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop: the caller flushes, or the batch grows full
        self._scheduled_in = loop
        loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Flush on behalf of everybody who appended during the last event-loop iteration."""
        with self.mutex:
            self._scheduled_in = None
            waiting, self._waiting = self._waiting, []
            failure: BusError | None = None
            if not self.closed:
                try:
                    self._flush(commits=bool(waiting) or self._commits_due)
                    self._failure = None
                except BusError as error:
                    failure = error
                    if all(one.done() for one in waiting):
                        self._failure = failure
                    # Without further appends nobody else would try again.
                    self._schedule_later(RETRY_S)
        for one in waiting:
            _settle(one, failure)

    def _schedule_later(self, delay_s: float) -> None:
        if self._later_in is not None and not self._later_in.is_closed():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._later_in = loop
        loop.call_later(delay_s, self._later)

    def _later(self) -> None:
        self._later_in = None
        self._commits_due = True
        if self._scheduled_in is None and (self._batch or self._committing) and not self.closed:
            self._schedule()

    def _flush_full_batch(self) -> None:
        try:
            self._flush()
        except BusError as error:
            # The record itself is kept; the next call hears of it.
            self._failure = error

    def _flush(self, *, commits: bool = True) -> None:
        committing = self._committing if commits else set()
        if not self._batch and not committing:
            return
        try:
            self._write(self._batch, committing)
        finally:
            left = [one for records in self._batch.values() for one in records]
            self._batch_records = len(left)
            self._batch_bytes = sum([len(one[0]) + len(one[2]) for one in left])
            self._batch_bytes += RECORD_OVERHEAD_BYTES * len(left)
        if commits:
            self._committing = set()
            self._commits_due = False

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _check_open(self) -> None:
        if self.closed:
            raise BusUnavailableError(f"{self.name} is closed")

    def _abandon_waiting(self) -> None:
        """Answer flush() calls that are still open when the bus closes."""
        waiting, self._waiting = self._waiting, []
        failure = BusUnavailableError(f"{self.name} was closed") if self._batch else None
        for one in waiting:
            _settle(one, failure)


def _settle(done: asyncio.Future[None], failure: BusError | None) -> None:
    loop = done.get_loop()
    if loop.is_closed():
        return

    def settle() -> None:
        if done.done():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        settle()
    else:
        loop.call_soon_threadsafe(settle)


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a record's key and value are bytes, not {type(data).__name__}")
