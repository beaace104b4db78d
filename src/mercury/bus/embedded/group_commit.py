"""Group commit: what is appended within one event-loop iteration is written together."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mercury.bus.buffering import RECORD_OVERHEAD_BYTES, RETRY_S, Batch, RecordBuffer
from mercury.bus.embedded.assignment import Commits
from mercury.bus.embedded.disk_sync import DiskSync
from mercury.bus.event_loop import call_in, running_loop
from mercury.model.errors import BusError, BusUnavailableError

if TYPE_CHECKING:
    from mercury.bus.embedded.consumer import EmbeddedConsumer

COMMIT_DELAY_S = 0.02


class GroupCommit(RecordBuffer):
    """Writes records and committed offsets once per event-loop iteration."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._committing: set[EmbeddedConsumer] = set()  # consumers with offsets to write
        self._commits_due = False  # offsets have waited long enough
        self._waiting: list[asyncio.Future[None]] = []  # flush() calls
        self._later_in: asyncio.AbstractEventLoop | None = None  # has a timer to flush

        self._disk: DiskSync | None = None  # if nothing is acknowledged that is not on the disk

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Append records.

        A topic whose records are written is taken out of the batch, so that after a failure only
        the rest is tried again.
        """

    @abstractmethod
    def _write_commits(self, committing: Mapping[EmbeddedConsumer, Commits | None]) -> None:
        """Write the offsets of consumers, each no further than a limit."""

    @abstractmethod
    def _explain(self, error: OSError) -> BusError:
        """What an error of the disk means, in one sentence."""

    def flush_now(self) -> None:
        with self.mutex:
            self.check_open()
            self._failure = None  # what failed is tried again here, and raises here
            self._flush()

    async def flush(self) -> None:
        with self.mutex:
            self.check_open()
            self._failure = None  # what failed is tried again, and raises here
            if not self._batch and not self._committing and self._disk is None:
                return
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()
            self._waiting.append(done)
            if self._scheduled_in is not loop:  # another loop may never run again
                self._schedule()
        await done

    def enqueue_commit(self, consumer: EmbeddedConsumer) -> None:
        """Write a consumer's offsets with the next flush that is asked for, or a little later.

        A commit costs as much as a batch of records, and losing one means no more than reading
        again: many batches share one.
        """
        with self.mutex:
            self._committing.add(consumer)
            self._schedule_later(COMMIT_DELAY_S)

    def _tick(self) -> None:
        with self.mutex:
            self._scheduled_in = None
            waiting, self._waiting = self._waiting, []
            failure: BusError | None = None
            if not self.closed:
                try:
                    commits = bool(waiting) or self._commits_due
                    if self._disk is None:
                        self._flush(commits=commits)
                    else:
                        self._flush_later(self._disk, waiting, commits=commits)
                        waiting = []
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
        loop = running_loop()
        if loop is None or (self._later_in is not None and not self._later_in.is_closed()):
            return
        self._later_in = loop
        loop.call_later(delay_s, self._later)

    def _later(self) -> None:
        self._later_in = None
        self._commits_due = True
        if self._scheduled_in is None and (self._batch or self._committing) and not self.closed:
            self._schedule()

    def _write_full_batch(self) -> None:
        try:
            self._append_batch()
        except BusError as error:
            # The record itself is kept; the next call hears of it.
            self._failure = error

    def _flush(self, *, commits: bool = True) -> None:
        self._append_batch()
        if self._disk is not None:
            try:
                self._disk.sync_now()
            except OSError as error:
                raise self._explain(error) from error
        if commits and self._committing:
            self._write_commits(dict.fromkeys(self._committing))
            self._committing = set()
        if commits:
            self._commits_due = False

    def _append_batch(self) -> None:
        if not self._batch:
            return
        try:
            self._write(self._batch)
        finally:
            left = [one for records in self._batch.values() for one in records]
            self._batch_records = len(left)
            self._batch_bytes = RECORD_OVERHEAD_BYTES * len(left) + sum(
                [len(key) + len(headers) + len(value) for key, headers, value in left]
            )

    def _flush_later(
        self, disk: DiskSync, waiting: list[asyncio.Future[None]], *, commits: bool
    ) -> None:
        """Append, and do the rest when that is on the disk.

        Offsets are then committed no further than asked for now: what was made of later records
        may not be on the disk.
        """
        self._append_batch()
        limits: dict[EmbeddedConsumer, Commits] = {}
        if commits:
            for one in self._committing:
                pending = one.assignment.pending_commits
                limits[one] = {topic_id: dict(some) for topic_id, some in pending.items()}
            self._committing = set()
            self._commits_due = False
        if not waiting and not limits:
            return
        loop = asyncio.get_running_loop()

        def synced(error: OSError | None) -> None:
            failure = None if error is None else self._explain(error)
            with self.mutex:
                try:
                    if failure is None and limits and not self.closed:
                        self._write_commits(limits)
                except BusError as refused:
                    failure = refused
                if failure is not None:
                    self._committing |= limits.keys()
                    call_in(loop, lambda: self._schedule_later(RETRY_S))
            for one in waiting:
                _settle(one, failure)

        disk.when_synced(synced)

    def _finish(self) -> None:
        """Take nothing more, and answer flush() calls that are still open."""
        self.closed = True
        waiting, self._waiting = self._waiting, []
        failure = BusUnavailableError(f"{self.name} was closed") if self._batch else None
        for one in waiting:
            _settle(one, failure)


def _settle(done: asyncio.Future[None], failure: BusError | None) -> None:
    def settle() -> None:
        if done.done():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    call_in(done.get_loop(), settle)
