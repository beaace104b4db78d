"""The thread of a consumer: it alone talks to the Kafka client, and fills the fetch buffer."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from mercury.bus.api import FromTime, Record, Start
from mercury.bus.kafka.cluster import (
    ANSWER_S,
    EARLIEST,
    LATEST,
    METADATA_S,
    Cluster,
    Commits,
    PartitionId,
    log,
    trouble,
)
from mercury.bus.kafka.fetch_buffer import FetchBuffer
from mercury.bus.kafka.standstill import REPORT_S, Standstill
from mercury.model.errors import BusError, BusUnavailableError

TICK_S = 0.02  # interval at which the thread handles requests between fetches
_BUSY_TICK_S = 0.005
_BATCH = 1024
_COMMIT_S = 2.0
HANDOVER_S = 2.0  # for readers to commit, before their partitions move to another member
GIVE_UP_S = 120.0  # of standing still: then a whole new process is tried
_LEAVE_S = 2.0
_LOADED_S = 0.2
_RENEW_INTERVAL_S = 1.0  # at least, between two clients
_END_S = 10.0

# The client is of no more use: another has its name, since it was given up or away too long.
_CLIENT_ENDED = {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID}

# Commits that fail because partitions move; retried if the partition is still owned.
_REBALANCING = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._WAIT_COORD,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
    *_CLIENT_ENDED,
}

# The errors of a commit from outside the group, when the group has members already.
_HAS_MEMBERS = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
}


class _Commit(NamedTuple):
    """Positions to commit, and the outcome."""

    commits: Commits
    answer: Future[KafkaError | None]

    def answered(self, error: KafkaError | None) -> None:
        if not self.answer.done():
            self.answer.set_result(error)


class Fetcher:
    """Fetches what a consumer reads, as one of a group or alone, and commits for it."""

    def __init__(
        self,
        cluster: Cluster,
        patterns: tuple[str, ...],
        group: str | None,
        start: Start,
        *,
        on_records: Callable[[], None],
        handover: Callable[[], Future[None] | None],
    ) -> None:
        self.changed = threading.Condition()  # guards the fetch buffer
        self.fetch_buffer = FetchBuffer(patterns)
        self.failure: BusError | None = None
        self._cluster = cluster
        self._patterns = patterns
        self._group = group
        self._on_records = on_records  # called after records were fetched
        self._handover = handover  # makes commits durable, before partitions go
        self._follows_patterns = any(pattern.endswith(".*") for pattern in patterns)
        self._following: dict[str, int] = {}  # topics, and their partitions
        self._followed_version = -1
        self._assigned = False  # whether the group has assigned partitions once
        self.has_joined = group is None  # whether those partitions, maybe none, are ours now
        self._renewed_at = 0.0
        self._must_join = False  # again
        self._standstill = Standstill()
        self._ending = False
        # A commit blocks for ever if another thread polls meanwhile: only ours may commit.
        self._asked: deque[_Commit] = deque()  # for the thread to send
        self._sent: deque[_Commit]  # and awaiting their result, in this order
        self._name = f"mercury-{os.getpid()}-{uuid.uuid4().hex[:8]}"  # client id in the group
        self._client = self._new_client()
        try:
            self._begin(start)
        except BaseException:
            self._client.close()
            raise
        self._thread = threading.Thread(target=self._run, name="kafka-fetcher", daemon=True)
        self._thread.start()

    def _new_client(self) -> Consumer:
        sent: deque[_Commit] = deque()

        def on_commit(error: KafkaError | None, offsets: list[TopicPartition]) -> None:
            for one in offsets:
                error = error or one.error
            if sent:
                sent.popleft().answered(error)

        def on_error(error: KafkaError) -> None:
            if error.code() not in _CLIENT_ENDED:
                self._cluster.on_error(error)
            elif sent is self._sent:  # not of one that was given up
                self._must_renew = True

        self._sent = sent
        self._must_renew = False
        return Consumer(self._config() | {"on_commit": on_commit, "error_cb": on_error})

    def _config(self) -> dict[str, Any]:
        # Who returns under its name has its partitions back at once. Without one it is a new
        # member, and the group waits for the session of the old one to end.
        name = {"group_instance_id": self._name} if self._group is not None else {}
        return self._cluster.config(
            **name,
            client_id=self._name,
            group_id=self._cluster.prefix + (self._group or self._name),
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            # A topic without a committed offset is younger than its group, and what lies below
            # the retention is gone: both go on with the oldest record there is.
            auto_offset_reset="earliest",
            # Balances each topic. Sticky assignors count partitions over all topics: of two
            # members, one may get all requests and the other all content.
            partition_assignment_strategy="roundrobin",
            session_timeout_ms=6000,  # the least that brokers allow as they come
            heartbeat_interval_ms=200,
            fetch_wait_max_ms=100,  # partitions that join wait for a request that is under way
            fetch_error_backoff_ms=50,
            queued_min_messages=4096,
            queued_max_messages_kbytes=16 * 1024,
            # Else a client that finds no broker destroys those it knows, and what it asked them
            # with them: it may wait for an answer for ever.
            metadata_recovery_strategy="none",
        )

    # Called by the consumer

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def trouble(self) -> str:
        """One sentence on a reader that stands still; empty if it does not."""
        lasts_s = self._standstill.lasts_s(time.monotonic())
        if lasts_s <= REPORT_S:
            return ""
        what = self._group or ", ".join(self._patterns)
        return (
            f"reading {what} has stood still for {lasts_s:.0f} s, "
            f"though {self._cluster.name} answers"
        )

    def follows(self) -> bool:
        """Whether all topics known now are subscribed to."""
        return self._followed_version >= self._cluster.version

    def refresh_topics_if_due(self) -> None:
        """Look for topics that others create, if the subscription has a pattern."""
        if self._follows_patterns:
            self._cluster.refresh_topics_if_due()

    def await_assignment(self, timeout_s: float) -> None:
        """Wait until the group has assigned its partitions and ours are known."""
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self._assigned
                    or self.failure
                    or (self._followed_version >= 0 and not self._following)
                ),
                timeout_s,
            )

    def commit(self, commits: Commits) -> None:
        """Commit positions, as far as they are still ours, and return when that is durable."""
        deadline = time.monotonic() + _COMMIT_S
        while not self._ending:
            with self.changed:
                # Only the owner of a partition may commit its offset.
                ours = self.fetch_buffer.committable()
                asked = _Commit({at: to for at, to in commits.items() if at in ours}, Future())
                if not asked.commits:
                    return
                self._asked.append(asked)
            try:
                error = asked.answer.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                error = KafkaError(KafkaError._TIMED_OUT)
            if error is None:
                return
            if error.code() not in _REBALANCING or time.monotonic() > deadline:
                raise trouble(error, self._cluster.name)
            time.sleep(_BUSY_TICK_S)

    def end(self) -> None:
        """Leave the group and stop, without waiting for it."""
        with self.changed:
            self._ending = True
            self.changed.notify_all()

    def join(self) -> None:
        """Return when the thread has ended."""
        self._thread.join(_END_S)

    # Where reading starts

    def _begin(self, start: Start) -> None:
        cluster = self._cluster
        cluster.refresh_topics()  # topics that exist before the start are not new
        topics = cluster.matching(self._patterns)
        partition_ids = cluster.partition_ids(topics)
        if self._group is None:
            self._followed_version = cluster.version
            self._assign(self._positions(partition_ids, start))
            self._following = topics
            return
        group_partition = cluster.group_partition()
        if self._is_new([group_partition, *partition_ids]):
            # Without a committed offset a topic is read from its beginning.
            starts = {} if start == "earliest" else self._positions(partition_ids, start)
            self._commit_starts({**starts, group_partition: 0})

    def _is_new(self, partition_ids: Sequence[PartitionId]) -> bool:
        """Whether our group has committed nothing.

        Asked by the consumer: librdkafka (seen with 2.16) crashes when an admin client lists a
        group's offsets at the moment its coordinator moves.
        """
        ask = self._offsets(dict.fromkeys(partition_ids, -1001))
        found = self._cluster.with_retry(lambda: self._client.committed(ask, timeout=ANSWER_S))
        return not any(one.offset >= 0 for one in found)

    def _commit_starts(self, commits: Commits) -> None:
        """Commit where a new group starts, unless another member was faster."""

        def commit() -> None:
            error = self._commit(commits)
            if error is not None and error.code() not in _HAS_MEMBERS:
                raise KafkaException(error)

        self._cluster.with_retry(commit)

    def _commit(self, commits: Commits) -> KafkaError | None:
        try:
            done = self._client.commit(offsets=self._offsets(commits), asynchronous=False)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            return cause
        return next((one.error for one in done if one.error is not None), None)

    def _positions(
        self, partition_ids: Sequence[PartitionId], start: Start
    ) -> dict[PartitionId, int]:
        if isinstance(start, FromTime):
            return self._cluster.since(partition_ids, start.timestamp_us)
        return self._cluster.offsets(partition_ids, LATEST if start == "latest" else EARLIEST)

    def _assign(self, positions: Mapping[PartitionId, int]) -> None:
        with self.changed:
            self.fetch_buffer.assign(positions)
            self.changed.notify_all()
        if positions:
            self._client.incremental_assign(self._offsets(positions))

    # The thread

    def _run(self) -> None:
        try:
            while not self._ending:
                self._follow()
                message = self._client.poll(
                    _BUSY_TICK_S if self.fetch_buffer.holds_back else TICK_S
                )
                if message is not None:
                    self._take_in([message, *self._client.consume(_BATCH, 0)])
                if self._renewal_due() or self._stands_still():
                    self._renew()
                if self._must_join:
                    self._join_when_loaded()
                self._hold_back()
                self._send_commits()
        except BusError as error:
            self._fail(error)
        except KafkaException as error:
            self._fail(trouble(error.args[0], self._cluster.name))
        except BaseException as error:
            self._fail(BusError(f"reading from {self._cluster.name} fails: {error!r}"))
            raise
        finally:
            self._leave()
            self._client.close()
            for commit in (*self._sent, *self._asked):
                commit.answered(KafkaError(KafkaError._DESTROY))
            self._on_records()

    def _fail(self, error: BusError) -> None:
        log.debug("%s", error)  # raised to the reader
        with self.changed:
            self.failure = error
            self.changed.notify_all()

    def _leave(self) -> None:
        """Leave the group; closing alone would keep our partitions until the session ends."""
        if self._group is None:
            return
        deadline = time.monotonic() + self._cluster.remaining_timeout_s(_LEAVE_S)
        try:
            self._client.unsubscribe()
            while self._client.memberid() and time.monotonic() < deadline:
                self._client.poll(_BUSY_TICK_S)
        except KafkaException as error:
            self._cluster.report_error(trouble(error.args[0], self._cluster.name))

    def _renewal_due(self) -> bool:
        return self._must_renew and time.monotonic() - self._renewed_at > _RENEW_INTERVAL_S

    def _stands_still(self) -> bool:
        """Look, at intervals, whether this client goes on while the cluster answers."""
        if not self._standstill.check_due(time.monotonic()):
            return False
        try:
            waiting = self._waiting_records()
        except BusError as error:
            log.debug("%s", error)
            self._standstill.unknown(time.monotonic())
            return False
        # Without topics there is nothing to join.
        has_joined = self.has_joined or not self._following
        must_renew = self._standstill.checked(has_joined, waiting, time.monotonic())
        # With `_must_join` the group does not answer yet, and a new start would not help.
        lasts_s = self._standstill.lasts_s(time.monotonic())
        if lasts_s > GIVE_UP_S and not has_joined and not self._must_join:
            raise BusError(f"{self.trouble()}; start this again")
        if not must_renew:
            return False
        log.warning("%s; trying a new connection", self.trouble())
        return True

    def _waiting_records(self) -> dict[PartitionId, int]:
        """Where records wait in our partitions, if the cluster answers."""
        if self._cluster.is_away:
            raise BusUnavailableError(f"{self._cluster.name} is away")  # costs no time
        if not self.has_joined:
            self._cluster.refresh_topics(METADATA_S)
            return {}
        with self.changed:
            partition_ids = list(self.fetch_buffer.assignments())
        spans = self._cluster.spans(partition_ids, METADATA_S)
        with self.changed:
            return self.fetch_buffer.waiting(spans)

    def _renew(self) -> None:
        """Go on with a new client, as after a start."""
        self._renewed_at = time.monotonic()
        # It may hang. Under our name the new one takes its place in the group.
        threading.Thread(target=self._client.close, name="kafka-closing", daemon=True).start()
        with self.changed:
            positions = self.fetch_buffer.restart()
            if self._group is not None:
                self.fetch_buffer.revoke(self.fetch_buffer.committable())
            given_up = [*self._sent, *self._asked]
            self._asked.clear()
            self.changed.notify_all()
        for commit in given_up:
            commit.answered(KafkaError(KafkaError._ASSIGNMENT_LOST))
        self._client = self._new_client()
        if self._group is None:
            self._client.incremental_assign(self._offsets(positions))
        else:
            self.has_joined = False
            self._must_join = True

    def _join_when_loaded(self) -> None:
        """Join our group again; while Kafka still loads it, a client is refused and waits 2 s."""
        try:
            group_partition = self._offsets({self._cluster.group_partition(): -1001})
            [found] = self._client.committed(group_partition, timeout=_LOADED_S)
        except (BusError, KafkaException):
            return  # tried again at once
        if found.error is None:
            self._must_join = False
            self._subscribe(self._following)

    def _follow(self) -> None:
        """Subscribe to topics created since."""
        try:
            self.refresh_topics_if_due()
            version = self._cluster.version
            if version != self._followed_version:
                topics = self._cluster.matching(self._patterns)
                self._check_lost(topics)
                self._take_topics(topics)
                with self.changed:
                    self._following = {**self._following, **topics}
                    self._followed_version = version
                    self.changed.notify_all()
        except BusUnavailableError as error:
            self._cluster.report_error(error)  # retried at the next call

    def _check_lost(self, topics: Mapping[str, int]) -> None:
        """Fail when the cluster has come back without its data; a restart begins anew."""
        if self._following.keys() <= topics.keys():
            return
        time.sleep(METADATA_S)  # a broker that just started may not know all of them yet
        self._cluster.refresh_topics()
        if lost := sorted(self._following.keys() - self._cluster.matching(self._patterns).keys()):
            raise BusError(
                f"{self._cluster.name} has lost topics that were read here ({', '.join(lost)}); "
                "start this again to have them made anew, empty"
            )

    def _take_topics(self, topics: Mapping[str, int]) -> None:
        if self._group is None:
            # Their records all came after the start.
            ours = self.fetch_buffer.assignments()
            new = set(self._cluster.partition_ids(topics)).difference(ours)
            self._assign(self._positions(sorted(new), "earliest"))
        elif not topics.keys() <= self._following.keys():
            self._subscribe({**self._following, **topics})

    def _subscribe(self, topics: Mapping[str, int]) -> None:
        self._client.subscribe(
            [self._cluster.prefix + topic for topic in topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _take_in(self, messages: Sequence[Message]) -> None:
        skip = len(self._cluster.prefix)
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(_record(message, skip))
            elif error.fatal() or error.code() in _CLIENT_ENDED:
                self._must_renew = True
            else:
                self._cluster.report_error(trouble(error, self._cluster.name))
        with self.changed:
            self.fetch_buffer.put(records)
            self.changed.notify_all()
        self._on_records()

    def _hold_back(self) -> None:
        with self.changed:
            full, roomy = self.fetch_buffer.pause_and_resume()
        if full:
            self._client.pause([self._cluster.partition(partition_id) for partition_id in full])
        if roomy:
            self._client.resume([self._cluster.partition(partition_id) for partition_id in roomy])

    # The assignment of a group

    def _on_assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        if client is not self._client:
            return  # it was given up, and closes
        self.has_joined = True
        partition_ids = [self._cluster.partition_id(one) for one in partitions]
        try:
            committed = client.committed(partitions, timeout=_COMMIT_S) if partitions else []
            commits = {self._cluster.partition_id(one): one.offset for one in committed}
            spans = self._cluster.spans(partition_ids)
            with self.changed:
                # Partitions that stay ours continue at our position, which will be committed.
                ours = self.fetch_buffer.parked()
            positions = {
                # Without a committed offset it is negative.
                at: min(max(commits[at], ours.get(at, 0), low), end)
                for at, (low, end) in spans.items()
            }
            partitions = self._offsets(positions)
        except (BusError, KafkaException) as error:
            # The client looks up the committed offsets itself, later.
            log.debug("%s: where to go on is not known yet: %s", self._cluster.name, error)
            positions = dict.fromkeys(partition_ids, 0)
        with self.changed:
            self.fetch_buffer.assign(positions)
            self._assigned = True
            self.changed.notify_all()
        client.assign(partitions)
        client.resume(partitions)  # the fetch buffer is empty

    def _on_revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        if client is not self._client:
            return
        self.has_joined = False
        with self.changed:
            self.fetch_buffer.park([self._cluster.partition_id(one) for one in partitions])
            self.changed.notify_all()
        deadline = time.monotonic() + HANDOVER_S
        done: Future[None] | None = None
        while not self._ending and time.monotonic() < deadline:
            self._finish_commits()
            if done is None and not self.fetch_buffer.has_uncommitted:  # the reader is done
                done = self._handover()  # its commits are queued to this thread
                if done is None:
                    break
            if done is not None and done.done():
                break
            time.sleep(0.001)

    def _on_lost(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        if client is not self._client:
            return
        self.has_joined = False
        # What this client still has to do, it would do as nobody: it forgets who it was, and an
        # offset that is committed late would end it.
        self._must_renew = True
        with self.changed:
            self.fetch_buffer.revoke([self._cluster.partition_id(one) for one in partitions])
            self.changed.notify_all()

    def _send_commits(self) -> None:
        while self._asked:
            commit = self._asked.popleft()
            try:
                self._client.commit(offsets=self._offsets(commit.commits), asynchronous=True)
                self._sent.append(commit)  # its callback runs in a later poll of this thread
            except KafkaException as error:
                commit.answered(error.args[0])

    def _finish_commits(self) -> None:
        """Complete the requested commits now: inside a callback no other callback runs."""
        asked = list(self._sent)  # stay there until their callbacks ran
        while self._asked:
            asked.append(self._asked.popleft())
        for commit in asked:
            if not commit.answer.done():
                commit.answered(self._commit(commit.commits))

    def _offsets(self, positions: Mapping[PartitionId, int]) -> list[TopicPartition]:
        return [self._cluster.partition(*entry) for entry in positions.items()]


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
