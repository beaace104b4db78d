"""Records on their way to Kafka, and the marks that may only follow when those arrived.

What is appended within one event-loop iteration is a batch. Batches are settled in order: when
all records of a batch and of those before it are acknowledged, its marks are committed, and then
whoever waits for it hears.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mercury.bus.api import Headers
from mercury.bus.kafka.cluster import Cluster, Commits, trouble
from mercury.model.errors import BusError, BusFullError, BusUnavailableError

log = logging.getLogger("mercury.bus.kafka.bus")

# The client sends one request for each partition. Measured at 1,000 round trips a second through
# one broker with 4 partitions: without a wait the requests keep the broker busy (18 ms), with 2 ms
# it is 8; with 16 partitions hardly any record finds company, whatever the wait (17 to 27 ms).
LINGER_MS = 2
BATCH_RECORDS = 8192
# What may wait in memory while the cluster cannot be reached, before append refuses.
BUFFER_BYTES = 64 * 1024**2
RECORD_OVERHEAD_BYTES = 64
MARK_DELAY_S = 0.1  # what a crash may have done again
RETRY_S = 0.25


class Committer(Protocol):
    """A consumer whose positions are to be committed."""

    def take_pending(self) -> Commits:
        """What `commit` was called for."""

    def commit_now(self, commits: Commits) -> None:
        """Commit, and return when it is durable."""

    def enqueue_commit_again(self, commits: Commits) -> None:
        """That failed: have it tried again, later."""


class Batch:
    """Records that were appended together, and what is to happen once they are acknowledged."""

    __slots__ = ("commits", "failure", "outstanding", "records", "size", "waiting")

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes, Headers]] = []
        self.size = 0
        self.outstanding = 0  # records without an answer yet
        self.failure: BusError | None = None
        self.commits: list[tuple[Committer, Commits]] = []
        self.waiting: list[Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self.records or self.commits or self.waiting)


class Outbox:
    """Hands records to the producer, in order, and keeps account of what was acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = Producer(
            cluster.config(
                enable_idempotence=True,
                acks="all",
                linger_ms=LINGER_MS,
                # As Java's clients do: what Spark appends for a key stands with what we append.
                partitioner="murmur2_random",
                # Nothing is given up while the process lives; the limit is BUFFER_BYTES.
                message_timeout_ms=0,
                queue_buffering_max_messages=0,
                queue_buffering_max_kbytes=2 * BUFFER_BYTES // 1024,
            )
            | {"logger": log}
        )
        self._lock = threading.Condition(threading.RLock())
        self._open = Batch()  # takes what is appended now
        self._posted: deque[Batch] = deque()  # not yet settled
        self._unsent: deque[Batch] = deque()  # of those, whose topics have to be made first
        self._size = 0  # of all records that are not acknowledged
        self._spread = itertools.count()
        self._committing: dict[Committer, None] = {}
        self._commits_due = 0.0
        self._scheduled_in: asyncio.AbstractEventLoop | None = None
        self._failure: BusError | None = None  # that nobody waited for
        self._ending = False
        self._threads = [
            threading.Thread(target=work, name=f"kafka-{name}", daemon=True)
            for name, work in (("reports", self._serve_reports), ("outbox", self._work))
        ]
        for thread in self._threads:
            thread.start()

    # What the bus calls

    def append(self, topic: str, value: bytes, key: bytes, headers: Headers) -> None:
        """Put a record into the open batch."""
        size = len(value) + len(key) + RECORD_OVERHEAD_BYTES
        for name, data in headers:
            size += len(name) + len(data)
        with self._lock:
            if self._failure is not None:
                self._raise_failure()
            if self._size + size > BUFFER_BYTES:
                raise BusFullError(
                    f"{self._size >> 20} MiB of records wait because {self._cluster.name} does not "
                    "acknowledge them; no more are accepted until it does"
                )
            self._size += size
            batch = self._open
            batch.records.append((topic, value, key, headers))
            batch.size += size
            if len(batch.records) >= BATCH_RECORDS:
                self._post()
            elif self._scheduled_in is None or self._scheduled_in.is_closed():
                self._schedule()

    def enqueue_commit(self, committer: Committer) -> None:
        """Commit a consumer's positions with the next flush, or a little later."""
        with self._lock:
            if not self._committing:
                self._commits_due = time.monotonic() + MARK_DELAY_S
                self._lock.notify_all()
            self._committing[committer] = None

    def flush(self) -> Future[None] | None:
        """Send everything; what went wrong unheard is raised here."""
        with self._lock:
            self._raise_failure()
            return self.send()

    def send(self) -> Future[None] | None:
        """Send everything; the future is done when all of it is durable. None: it is already."""
        with self._lock:
            if not (self._open or self._posted or self._committing):
                return None
            done: Future[None] = Future()
            self._open.waiting.append(done)
            self._post(commits=True)
            return done

    def flush_now(self, timeout_s: float) -> None:
        """The same, waiting here."""
        done = self.flush()
        if done is None:
            return
        try:
            done.result(timeout_s)
        except TimeoutError:
            raise self.late(timeout_s) from None

    @property
    def outstanding(self) -> int:
        """How many records are not acknowledged."""
        with self._lock:
            return sum(batch.outstanding for batch in self._posted) + len(self._open.records)

    def late(self, timeout_s: float) -> BusError:
        """What to say when a flush takes too long."""
        return BusUnavailableError(
            f"{self._cluster.name} has not acknowledged {self.outstanding} records within "
            f"{timeout_s:g} s; they are kept and sent when it can be reached"
        )

    def close(self) -> None:
        """End the threads; what was not flushed is lost."""
        with self._lock:
            self._ending = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join()
        # Delivery reports of what is given up must not find us gone.
        self._producer.purge()
        self._producer.poll(0)
        failure = BusUnavailableError(f"{self._cluster.name} was closed")
        for batch in (*self._posted, self._open):
            for done in batch.waiting:
                _settle(done, failure)

    # Turns of the event loop

    def _schedule(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop: the caller flushes, or the batch grows full
        self._scheduled_in = loop
        loop.call_soon(self._tick)

    def _tick(self) -> None:
        with self._lock:
            self._scheduled_in = None
            self._post()

    def _post(self, *, commits: bool = False) -> None:
        """Close the open batch and send it."""
        batch = self._open
        if commits:
            batch.commits = [
                (committer, committer.take_pending()) for committer in self._committing
            ]
            self._committing.clear()
        if not batch:
            return
        self._open = Batch()
        batch.outstanding = len(batch.records)
        self._posted.append(batch)
        known = self._cluster.partitions_of
        if self._unsent or any(known(record[0]) is None for record in batch.records):
            self._unsent.append(batch)
        else:
            self._send(batch)
        if self._unsent or not batch.outstanding:
            self._lock.notify_all()

    def _send(self, batch: Batch) -> None:
        produce, prefix, known = (
            self._producer.produce,
            self._cluster.prefix,
            self._cluster.partitions_of,
        )

        def answered(error: KafkaError | None, message: Message) -> None:
            self._on_answer(batch, error)

        for topic, value, key, headers in batch.records:
            partition = -1 if key else next(self._spread) % (known(topic) or 1)
            try:
                produce(
                    prefix + topic,
                    value,
                    key or None,
                    partition,
                    on_delivery=answered,
                    headers=list(headers) if headers else None,
                )
            except (KafkaException, BufferError) as error:
                cause = error.args[0] if isinstance(error, KafkaException) else None
                self._on_answer(batch, cause or KafkaError(KafkaError._QUEUE_FULL))
        batch.records = []

    def _on_answer(self, batch: Batch, error: KafkaError | None) -> None:
        with self._lock:
            batch.outstanding -= 1
            if error is not None and batch.failure is None:
                batch.failure = trouble(error, self._cluster.name)
            if not batch.outstanding:
                self._size -= batch.size
                self._drop_plain()
                if self._has_work():
                    self._lock.notify_all()

    def _drop_plain(self) -> None:
        """Let go of the first batches if all is well and nobody waits: most are such."""
        while self._posted and self._failure is None:
            batch = self._posted[0]
            if batch.outstanding or batch.failure or batch.commits or batch.waiting:
                return
            self._posted.popleft()

    # Threads

    def _serve_reports(self) -> None:
        while not self._ending:
            self._producer.poll(0.1)

    def _work(self) -> None:
        """Make topics, commit marks and tell who waits: whatever must not keep a loop waiting."""
        while True:
            with self._lock:
                while not self._ending and not self._has_work():
                    due = self._commits_due - time.monotonic() if self._committing else None
                    self._lock.wait(due if due is None else max(due, 0.001))
                if self._ending:
                    return
                if self._committing and time.monotonic() >= self._commits_due:
                    self._post(commits=True)
                unsent = self._unsent[0] if self._unsent else None
            if unsent is not None:
                self._make_topics_and_send(unsent)
            self._settle_answered()

    def _has_work(self) -> bool:
        answered = bool(self._posted) and not self._posted[0].outstanding
        commits_due = bool(self._committing) and time.monotonic() >= self._commits_due
        return answered or commits_due or bool(self._unsent)

    def _make_topics_and_send(self, batch: Batch) -> None:
        try:
            self._cluster.ensure({record[0] for record in batch.records})
        except BusUnavailableError:
            with self._lock:
                self._lock.wait(RETRY_S)
            return
        except BusError as error:
            with self._lock:
                self._unsent.popleft()
                batch.failure, batch.records, batch.outstanding = error, [], 0
                self._size -= batch.size
            return
        with self._lock:
            self._unsent.popleft()
            self._send(batch)

    def _settle_answered(self) -> None:
        while True:
            with self._lock:
                self._drop_plain()
                if not self._posted or self._posted[0].outstanding:
                    return
                batch = self._posted[0]
                if batch.failure is not None and not batch.waiting:
                    self._failure = batch.failure
                    log.warning("%s", batch.failure)
                # Until somebody heard that records were lost, what they came from is not done.
                failure = batch.failure or self._failure
            if failure is None:
                failure = self._commit(batch)
            with self._lock:
                self._posted.popleft()
            for done in batch.waiting:
                _settle(done, failure)

    def _commit(self, batch: Batch) -> BusError | None:
        failure = None
        for committer, commits in batch.commits:
            try:
                committer.commit_now(commits)
            except BusError as error:
                # No record is lost with it: only who waits hears of it, and it is tried again.
                log.warning("%s", error)
                committer.enqueue_commit_again(commits)
                failure = error
        return failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _settle(done: Future[None], failure: BusError | None) -> None:
    if not done.set_running_or_notify_cancel():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
