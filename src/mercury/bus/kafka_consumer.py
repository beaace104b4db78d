"""Reads from Kafka: a thread fetches, readers take from the shelf."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from mercury.bus.api import FromOffset, FromTime, Record, Start
from mercury.bus.kafka_cluster import Cluster, Place, trouble
from mercury.bus.kafka_outbox import Marks, Outbox
from mercury.bus.kafka_shelf import Shelf
from mercury.model.errors import BusError

log = logging.getLogger("mercury.bus.kafka")

TICK_S = 0.02  # the thread looks up from its fetching at least so often
_BUSY_TICK_S = 0.005
_BATCH = 1024
POLL_S = 1.0  # how long poll() waits for what it knows to be there
SETTLE_S = 10.0  # how long subscribe() waits for its share of a group
_COMMIT_S = 2.0
_HANDOVER_S = 1.0
_CLOSE_S = 10.0

# Commits that fail because shares are moving; whoever still owns its share tries again.
_MOVING = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._WAIT_COORD,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
}


class _Commit(NamedTuple):
    """Positions to commit, and what became of it."""

    marks: Marks
    answer: Future[KafkaError | None]


class KafkaConsumer:
    """Reads topics in their listed order, alone or as a member of a group."""

    def __init__(
        self,
        cluster: Cluster,
        outbox: Outbox,
        patterns: tuple[str, ...],
        group: str | None,
        start: Start,
    ) -> None:
        self.group = group
        self.closed = False
        self._cluster = cluster
        self._outbox = outbox
        self._patterns = patterns
        self._follows_patterns = any(pattern.endswith(".*") for pattern in patterns)
        self._wanted_from = start.offset if isinstance(start, FromOffset) else 0
        self._changed = threading.Condition(threading.Lock())  # guards the shelf and the marks
        self._shelf = Shelf(patterns)
        self._pending: Marks = {}
        self._asked: deque[_Commit] = deque()  # for the thread to send
        self._sent: deque[_Commit] = deque()  # and to hear about, in this order
        self._following: dict[str, int] = {}  # topics, and their partitions
        self._followed_version = -1
        self._failure: BusError | None = None
        self._ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._name = f"mercury-{os.getpid()}-{uuid.uuid4().hex[:8]}"  # among the group's members
        self._client = Consumer(self._config())
        try:
            if group is None:
                topics = cluster.matching(patterns)
                self._assign(self._start_of(topics, start))
                self._following, self._followed_version = topics, cluster.version
            elif cluster.is_new(group):
                topics = {} if start == "earliest" else cluster.matching(patterns)
                cluster.give_birth(group, self._start_of(topics, start))
        except BaseException:
            self._client.close()
            raise
        self._thread = threading.Thread(target=self._run, name="kafka-consumer", daemon=True)
        self._thread.start()
        if group is not None:
            self._settle()

    def _config(self) -> dict[str, object]:
        return self._cluster.config(
            client_id=self._name,
            group_id=self._cluster.group_name(self.group or self._name),
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            # A topic without a mark is younger than its group, and what lies below the retention
            # is gone: both go on with the oldest record there is.
            auto_offset_reset="earliest",
            # Members keep what they keep; only what moves stands still for a moment.
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=6000,  # the least that brokers allow as they come
            heartbeat_interval_ms=200,
            fetch_wait_max_ms=100,  # partitions that join wait for a request that is under way
            fetch_min_bytes=1,
            fetch_error_backoff_ms=50,
            queued_min_messages=4096,
            queued_max_messages_kbytes=16 * 1024,
        ) | {"logger": log, "on_commit": self._on_commit}

    # The interface

    def poll(self, max_records: int = 512) -> list[Record]:
        if not self.closed:
            self._catch_up()
        return self._deliver(max_records)

    async def read(self, max_records: int = 512, timeout_s: float | None = None) -> list[Record]:
        loop = self._loop = asyncio.get_running_loop()
        if len(self._shelf):
            # Let the loop send what a reader appends that is always behind.
            await asyncio.sleep(0)
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not self.closed:
            woken: asyncio.Future[None] = loop.create_future()
            # Before looking: what comes between looking and waiting must not be overlooked.
            self._waiting.add(woken)
            timer = None
            try:
                records = self._deliver(max_records)
                if records:
                    return records
                if deadline is not None and loop.time() >= deadline:
                    break
                if deadline is not None:
                    timer = loop.call_at(deadline, _wake, woken)
                await woken
            finally:
                self._waiting.discard(woken)
                if timer is not None:
                    timer.cancel()
        return []

    def commit(self) -> None:
        if self.group is None or self.closed:
            return
        with self._changed:
            self._pending.update(self._shelf.take_marks())
            if not self._pending:
                return
        self._outbox.mark(self)

    def lag(self) -> int:
        if self.closed:
            return 0
        self._follow_now()
        with self._changed:
            places = self._shelf.places()
        spans = self._cluster.spans(places)
        with self._changed:
            return self._shelf.lag(spans)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._pending:
                self._outbox.flush_now(_CLOSE_S)
        finally:
            self.end()
            if self.group is not None:
                self.join()  # the others take over when we have left

    # What the bus calls

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        """Stop reading and leave the group, soon."""
        with self._changed:
            self.closed = True
            self._ending = True
            self._changed.notify_all()
        self._wake_readers()

    def join(self) -> None:
        """Return when that is done."""
        self._thread.join(_CLOSE_S)

    def take_pending(self) -> Marks:
        with self._changed:
            marks, self._pending = self._pending, {}
            return marks

    def commit_now(self, marks: Marks) -> None:
        deadline = time.monotonic() + _COMMIT_S
        while not self._ending:
            with self._changed:
                # Only the owner may say how far a partition is done.
                ours = set(self._shelf.places())
                asked = _Commit({at: to for at, to in marks.items() if at in ours}, Future())
                if not asked.marks:
                    return
                self._asked.append(asked)
            try:
                error = asked.answer.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                error = KafkaError(KafkaError._TIMED_OUT)
            if error is None:
                return
            if error.code() not in _MOVING or time.monotonic() > deadline:
                raise trouble(error, self._cluster.name)
            time.sleep(_BUSY_TICK_S)

    # Where reading starts

    def _start_of(self, topics: Mapping[str, int], start: Start) -> dict[Place, int]:
        places = [(topic, part) for topic, count in topics.items() for part in range(count)]
        if isinstance(start, FromTime):
            return self._cluster.since(places, start.timestamp_us)
        spans = self._cluster.spans(places)
        if isinstance(start, FromOffset):
            return {place: min(max(start.offset, low), end) for place, (low, end) in spans.items()}
        return {place: end if start == "latest" else low for place, (low, end) in spans.items()}

    def _assign(self, positions: Mapping[Place, int]) -> None:
        """Take partitions and fetch from the given offsets on."""
        with self._changed:
            self._shelf.assign(positions, self._wanted_from if self.group is None else 0)
        if positions:
            self._client.incremental_assign(
                [self._cluster.partition(*p) for p in positions.items()]
            )

    def _settle(self) -> None:
        """Wait until the group has shared out its partitions, us included."""
        deadline = time.monotonic() + SETTLE_S
        with self._changed:
            while self._followed_version < 0 and self._failure is None:
                self._changed.wait(TICK_S)
        self._raise_failure()
        pause_s = 0.01
        while self._following and time.monotonic() < deadline:
            assert self.group is not None
            if self._cluster.is_settled(self.group, self._name, self._following):
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)

    # The thread

    def _run(self) -> None:
        try:
            while not self._ending:
                self._follow()
                message = self._client.poll(_BUSY_TICK_S if self._shelf.holds_back else TICK_S)
                if message is not None:
                    self._take_in([message, *self._client.consume(_BATCH, 0)])
                self._hold_back()
                self._send_commits(asynchronous=True)
        except BusError as error:
            self._fail(error)
        except KafkaException as error:
            self._fail(trouble(error.args[0], self._cluster.name))
        except BaseException as error:
            self._fail(BusError(f"reading from {self._cluster.name} fails: {error!r}"))
            raise
        finally:
            self._client.close()
            for commit in (*self._sent, *self._asked):
                commit.answer.set_result(KafkaError(KafkaError._DESTROY))
            self._wake_readers()

    def _fail(self, error: BusError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        log.error("%s", error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take_in(self, messages: Sequence[Message]) -> None:
        skip = len(self._cluster.prefix)
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(_record(message, skip))
            elif error.fatal():
                raise KafkaException(error)
            else:
                log.warning("%s: %s", self._cluster.name, error.str())
        with self._changed:
            self._shelf.put(records)
            self._changed.notify_all()
        self._wake_readers()

    def _hold_back(self) -> None:
        with self._changed:
            full, roomy = self._shelf.turned()
        if full:
            self._client.pause([self._cluster.partition(place) for place in full])
        if roomy:
            self._client.resume([self._cluster.partition(place) for place in roomy])

    def _send_commits(self, *, asynchronous: bool) -> None:
        while self._asked:
            commit = self._asked.popleft()
            offsets = [self._cluster.partition(*mark) for mark in commit.marks.items()]
            try:
                if asynchronous:
                    self._sent.append(commit)
                    self._client.commit(offsets=offsets, asynchronous=True)
                else:
                    self._client.commit(offsets=offsets, asynchronous=False)
                    commit.answer.set_result(None)
            except KafkaException as error:
                if asynchronous:
                    self._sent.pop()
                commit.answer.set_result(error.args[0])

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        for one in offsets:
            error = error or one.error
        if self._sent:
            self._sent.popleft().answer.set_result(error)

    def _follow(self) -> None:
        """Take in topics that were made since."""
        if self._follows_patterns:
            try:
                self._cluster.look_if_due()
            except BusError as error:
                log.warning("%s", error)
        version = self._cluster.version
        if version == self._followed_version:
            return
        topics = self._cluster.matching(self._patterns)
        new = {topic: count for topic, count in topics.items() if topic not in self._following}
        if new and self.group is None:
            # Nothing of them was there when we began: all of it came after.
            start: Start = FromOffset(self._wanted_from) if self._wanted_from else "earliest"
            self._assign(self._start_of(new, start))
        elif new:
            names = [self._cluster.prefix + topic for topic in topics]
            self._client.subscribe(
                names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        with self._changed:
            self._following = {**self._following, **new}
            self._followed_version = version
            self._changed.notify_all()

    def _on_assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        places = [self._cluster.place(one) for one in partitions]
        try:
            committed = {
                self._cluster.place(one): one.offset
                for one in client.committed(partitions, timeout=_COMMIT_S)
            }
            spans = self._cluster.spans(places)
            positions = {
                place: min(max(committed[place], low), end) for place, (low, end) in spans.items()
            }
            self._assign(positions)
        except (BusError, KafkaException) as error:
            # The client finds the committed offsets itself, later.
            log.warning("%s: where to go on is not known yet: %s", self._cluster.name, error)
            with self._changed:
                self._shelf.assign(dict.fromkeys(places, 0))
            client.incremental_assign(partitions)
        with self._changed:
            self._changed.notify_all()

    def _on_revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        if self._pending and not self._ending:
            # What was marked as done is not done again by the next owner.
            try:
                done = self._outbox.flush()
                deadline = time.monotonic() + _HANDOVER_S
                while done is not None and not done.done() and time.monotonic() < deadline:
                    self._send_commits(asynchronous=False)
                    time.sleep(0.001)
            except BusError as error:
                log.warning("%s", error)
        self._on_lost(client, partitions)

    def _on_lost(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [self._cluster.place(one) for one in partitions]
        with self._changed:
            self._shelf.revoke(gone)
            for place in gone:
                self._pending.pop(place, None)
            self._changed.notify_all()

    # Handing out

    def _deliver(self, max_records: int) -> list[Record]:
        with self._changed:
            if self.closed:
                return []
            records = self._shelf.take(max_records)
        if not records:
            self._raise_failure()
        return records

    def _catch_up(self) -> None:
        """Wait until what stands in our share now is on the shelf, as far as it has room."""
        try:
            self._follow_now()
            with self._changed:
                places = self._shelf.places()
            spans = self._cluster.spans(places)
        except BusError as error:
            log.warning("%s", error)
            return  # what we have may still be handed out
        with self._changed:
            self._changed.wait_for(lambda: self.closed or not self._shelf.behind(spans), POLL_S)

    def _follow_now(self) -> None:
        if not self._follows_patterns:
            return
        self._cluster.look_if_due()
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or self._followed_version >= self._cluster.version, POLL_S
            )

    def _wake_readers(self) -> None:
        loop = self._loop
        if not self._waiting or loop is None or loop.is_closed():
            return
        try:
            inside = asyncio.get_running_loop() is loop
        except RuntimeError:
            inside = False
        if inside:
            self._wake_waiting()
        else:
            with contextlib.suppress(RuntimeError):  # the loop closed just now
                loop.call_soon_threadsafe(self._wake_waiting)

    def _wake_waiting(self) -> None:
        for woken in tuple(self._waiting):
            _wake(woken)


def _record(message: Any, skip: int) -> Record:  # no error, hence nothing is missing
    headers = message.headers()
    return Record(
        message.topic()[skip:],
        message.partition(),
        message.offset(),
        message.timestamp()[1] * 1000,
        message.key() or b"",
        tuple([(name, value or b"") for name, value in headers]) if headers else (),
        message.value() or b"",
    )


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
