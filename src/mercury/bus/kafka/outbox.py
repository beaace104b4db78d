"""Records on their way to Kafka, and the offsets that may only be committed when those arrived.

What is appended within one event-loop iteration is a batch. Batches are resolved in order: when
all records of a batch and of those before it are acknowledged, its offsets are committed, and
then those who await it are woken.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mercury.bus.buffering import BUFFER_BYTES, RETRY_S, Batch, RecordBuffer
from mercury.bus.headers import check_headers
from mercury.bus.kafka.cluster import Cluster, Commits, log, trouble
from mercury.model.errors import BusAwayError, BusError, BusUnavailableError

if TYPE_CHECKING:
    from mercury.bus.kafka.consumer import KafkaConsumer

# The client sends one request for each partition. Measured at 1,000 round trips a second through
# one broker with 4 partitions: without a wait the requests keep the broker busy (18 ms), with 2 ms
# it is 8; with 16 partitions hardly any two records share one, whatever the wait (17 to 27 ms).
LINGER_MS = 2
COMMIT_DELAY_S = 0.1  # at most this much work is repeated after a crash


@dataclass(slots=True, eq=False)
class SentBatch:
    """Records appended together, and what to do once they are acknowledged."""

    records: Batch
    outstanding: int  # records without an answer yet
    size: int
    waiting: Future[None] | None
    commits: list[tuple[KafkaConsumer, Commits]]
    failure: BusError | None = None


class Outbox(RecordBuffer):
    """Passes records to the producer, in order, and counts acknowledgements."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.name, cluster.prefix)
        self._cluster = cluster
        self._producer = Producer(
            cluster.config(
                enable_idempotence=True,
                acks="all",
                linger_ms=LINGER_MS,
                # As Java's clients do: Spark's records of a key go to the same partition as ours.
                partitioner="murmur2_random",
                # Sends are retried while the process runs; the limit is BUFFER_BYTES.
                message_timeout_ms=0,
                queue_buffering_max_messages=0,
                queue_buffering_max_kbytes=2 * BUFFER_BYTES // 1024,
            )
        )
        self._changed = threading.Condition(self.mutex)
        self._sent: deque[SentBatch] = deque()  # not yet resolved
        self._unsent: deque[SentBatch] = deque()  # batches whose topics must be created first
        self._spread = itertools.count()
        self._committing: dict[KafkaConsumer, None] = {}
        self._commits_due = 0.0
        self._ending = False
        self._threads = [
            threading.Thread(target=work, name=f"kafka-{name}", daemon=True)
            for name, work in (("reports", self._serve_reports), ("outbox", self._work))
        ]
        for thread in self._threads:
            thread.start()

    # Called by the bus

    def enqueue_commit(self, consumer: KafkaConsumer) -> None:
        """Commit a consumer's positions with the next flush, or a little later."""
        with self.mutex:
            if not self._committing:
                self._commits_due = time.monotonic() + COMMIT_DELAY_S
                self._changed.notify_all()
            self._committing[consumer] = None

    def flush(self) -> Future[None] | None:
        """Send everything; raises errors of earlier sends that no caller awaited."""
        with self.mutex:
            self._raise_failure()
            return self.send()

    def send(self) -> Future[None] | None:
        """Send everything; the future is done when all of it is durable. None: it already is."""
        with self.mutex:
            if not (self._batch or self._sent or self._committing):
                return None
            done: Future[None] = Future()
            self._post(commits=True, waiting=done)
            return done

    def flush_now(self, timeout_s: float) -> None:
        """The same as `flush`, waiting here."""
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
        with self.mutex:
            return sum(batch.outstanding for batch in self._sent) + self._batch_records

    def late(self, timeout_s: float) -> BusError:
        """The error when a flush takes too long."""
        is_away = self._cluster.remaining_timeout_s(timeout_s) < timeout_s
        return (BusAwayError if is_away else BusUnavailableError)(
            f"{self.name} has not acknowledged {self.outstanding} records within "
            f"{timeout_s:g} s; they are kept and sent when it can be reached"
        )

    def close(self) -> None:
        """End the threads; what was not flushed is lost."""
        with self.mutex:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        # Delivery reports may still come for records that are given up.
        self._producer.purge()
        self._producer.poll(0)
        for batch in self._sent:
            _resolve(batch.waiting, BusUnavailableError(f"{self.name} was closed"))

    # Batches

    _pack_headers = staticmethod(check_headers)

    def _tick(self) -> None:
        with self.mutex:
            self._scheduled_in = None
            self._post()

    def _write_full_batch(self) -> None:
        self._post()

    def _post(self, *, commits: bool = False, waiting: Future[None] | None = None) -> None:
        """Close the open batch and send it."""
        committing = list(self._committing) if commits else []
        if not (self._batch or committing or waiting):
            return
        batch = SentBatch(
            self._batch,
            self._batch_records,
            self._batch_bytes,
            waiting,
            [(one, one.take_pending()) for one in committing],
        )
        if commits:
            self._committing.clear()
        self._batch, self._batch_records, self._batch_bytes = {}, 0, 0
        self._unacknowledged_bytes += batch.size
        self._sent.append(batch)
        known = self._cluster.partitions_of
        if self._unsent or any(known(topic) is None for topic in batch.records):
            self._unsent.append(batch)
        else:
            self._send(batch)
        if self._unsent or not batch.outstanding:
            self._changed.notify_all()

    def _send(self, batch: SentBatch) -> None:
        produce, spread = self._producer.produce, self._spread

        def answered(error: KafkaError | None, message: Message) -> None:
            self._on_answer(batch, error)

        for topic, records in batch.records.items():
            name = self._cluster.prefix + topic
            partitions = self._cluster.partitions_of(topic) or 1
            headers: Any
            for key, headers, value in records:
                partition = -1 if key else next(spread) % partitions
                try:
                    produce(
                        name,
                        value,
                        key or None,
                        partition,
                        on_delivery=answered,
                        headers=list(headers) if headers else None,
                    )
                except (KafkaException, BufferError) as error:
                    cause = error.args[0] if isinstance(error, KafkaException) else None
                    self._on_answer(batch, cause or KafkaError(KafkaError._QUEUE_FULL))
        batch.records = {}

    def _on_answer(self, batch: SentBatch, error: KafkaError | None) -> None:
        with self.mutex:
            batch.outstanding -= 1
            if error is not None and batch.failure is None:
                batch.failure = trouble(error, self.name)
            if not batch.outstanding:
                self._unacknowledged_bytes -= batch.size
                self._drop_plain()
                if self._has_work():
                    self._changed.notify_all()

    def _drop_plain(self) -> None:
        """Drop the first batches that are acknowledged and not awaited, as most are."""
        while self._sent and self._failure is None:
            batch = self._sent[0]
            if batch.outstanding or batch.failure or batch.commits or batch.waiting:
                return
            self._sent.popleft()

    # Threads

    def _serve_reports(self) -> None:
        while not self._ending:
            self._producer.poll(0.1)
            self._cluster.probe_if_due()

    def _work(self) -> None:
        """Create topics, commit offsets, wake callers: all that must not block a loop."""
        while True:
            with self.mutex:
                while not self._ending and not self._has_work():
                    due = self._commits_due - time.monotonic() if self._committing else None
                    self._changed.wait(due if due is None else max(due, 0.001))
                if self._ending:
                    return
                if self._committing and time.monotonic() >= self._commits_due:
                    self._post(commits=True)
                unsent = self._unsent[0] if self._unsent else None
            if unsent is not None:
                self._make_topics_and_send(unsent)
            self._resolve_answered()

    def _has_work(self) -> bool:
        answered = bool(self._sent) and not self._sent[0].outstanding
        commits_due = bool(self._committing) and time.monotonic() >= self._commits_due
        return answered or commits_due or bool(self._unsent)

    def _make_topics_and_send(self, batch: SentBatch) -> None:
        try:
            self._cluster.ensure(batch.records)
        except BusUnavailableError:
            with self.mutex:
                self._changed.wait(RETRY_S)
            return
        except BusError as error:
            with self.mutex:
                self._unsent.popleft()
                batch.failure, batch.records, batch.outstanding = error, {}, 0
                self._unacknowledged_bytes -= batch.size
            return
        with self.mutex:
            self._unsent.popleft()
            self._send(batch)

    def _resolve_answered(self) -> None:
        while True:
            with self.mutex:
                self._drop_plain()
                if not self._sent or self._sent[0].outstanding:
                    return
                batch = self._sent[0]
                if batch.failure is not None and batch.waiting is None:
                    self._failure = batch.failure
                    log.warning("%s", batch.failure)
                # Until the loss of records was raised, offsets of their sources are not committed.
                failure = batch.failure or self._failure
            if failure is None:
                failure = self._commit(batch)
            with self.mutex:
                self._sent.popleft()
            _resolve(batch.waiting, failure)

    def _commit(self, batch: SentBatch) -> BusError | None:
        failure = None
        for consumer, commits in batch.commits:
            try:
                consumer.fetcher.commit(commits)
            except BusError as error:
                # No record is lost: the error is raised to waiting callers, and the commit retried.
                self._cluster.report_error(error)
                consumer.enqueue_commit_again(commits)
                failure = error
        return failure


def _resolve(waiting: Future[None] | None, failure: BusError | None) -> None:
    if waiting is None or not waiting.set_running_or_notify_cancel():
        return
    if failure is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(failure)
