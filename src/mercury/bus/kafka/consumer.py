"""Reads from Kafka: a thread fetches, readers take from the fetch buffer."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from mercury.bus.api import Record, Start
from mercury.bus.kafka.cluster import ANSWER_S, Cluster, Commits, PartitionId
from mercury.bus.kafka.fetcher import Fetcher
from mercury.bus.kafka.outbox import Outbox
from mercury.bus.waiting import WaitingConsumer
from mercury.model.errors import BusError

POLL_S = 1.0  # how long poll() waits for records that it knows to exist
ASSIGNMENT_TIMEOUT_S = 10.0  # how long subscribe() waits for its partitions of a group
CLOSE_S = 10.0


class KafkaConsumer(WaitingConsumer):
    """Reads topics in their listed order, alone or as a member of a group."""

    def __init__(
        self,
        cluster: Cluster,
        outbox: Outbox,
        patterns: tuple[str, ...],
        group: str | None,
        start: Start,
    ) -> None:
        super().__init__()
        self.group = group
        self._cluster = cluster
        self._outbox = outbox
        self._pending: Commits = {}  # asked to be committed
        self.fetcher = Fetcher(
            cluster, patterns, group, start, on_records=self.wake, handover=self._hand_over
        )
        self._changed = self.fetcher.changed
        self._fetch_buffer = self.fetcher.fetch_buffer
        try:
            if group is not None:
                self.fetcher.await_assignment(ASSIGNMENT_TIMEOUT_S)
        except BaseException:
            self.fetcher.end()
            raise

    # The interface

    def poll(self, max_records: int = 512) -> list[Record]:
        if not self.closed:
            self._catch_up()
        return self._take(max_records)

    async def read_now(self, max_records: int = 512) -> list[Record]:
        if not self.closed:
            await asyncio.to_thread(self._catch_up)
        return self._take(max_records)

    def commit(self) -> None:
        if self.group is None or self.closed:
            return
        with self._changed:
            self._pending.update(self._fetch_buffer.take_commits())
            if not self._pending:
                return
        self._outbox.enqueue_commit(self)

    def lag(self) -> int:
        if self.closed:
            return 0
        spans = self._spans(ANSWER_S)
        with self._changed:
            return self._fetch_buffer.lag(spans)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self.group is not None:  # commits may also be in flight
                self._outbox.flush_now(self._cluster.remaining_timeout_s(CLOSE_S))
        except BusError as error:
            self._cluster.report_error(error)  # closing the bus reports what is lost
        finally:
            self.end()
            if self.group is not None:
                self.fetcher.join()  # others take over when this member has left

    # What the bus calls

    def end(self) -> None:
        """Stop reading and leave the group, soon."""
        self.closed = True
        self.fetcher.end()
        self.wake()

    def take_pending(self) -> Commits:
        """The positions to commit, and forget them."""
        with self._changed:
            commits, self._pending = self._pending, {}
            return commits

    def enqueue_commit_again(self, commits: Commits) -> None:
        """The commit failed: retry it later."""
        with self._changed:
            for partition_id, offset in commits.items():
                self._pending[partition_id] = max(offset, self._pending.get(partition_id, 0))
        if not self.closed:
            self._outbox.enqueue_commit(self)

    def _hand_over(self) -> Future[None] | None:
        """Flush commits before partitions move, so that the next owner repeats nothing."""
        if self._pending:  # an earlier commit() may still be in flight
            self._outbox.enqueue_commit(self)
        return self._outbox.send()

    # Handing out

    def _may_have_records(self) -> bool:
        return len(self._fetch_buffer) > 0 or self.fetcher.failure is not None

    def _take(self, max_records: int) -> list[Record]:
        with self._changed:
            if self.closed:
                return []
            records = self._fetch_buffer.take(max_records)
            if records:
                self._assignments = self._fetch_buffer.assignments()
        if not records and self.fetcher.failure is not None:
            raise self.fetcher.failure
        return records

    def _catch_up(self) -> None:
        """Wait until all records now in our partitions are fetched, as far as there is room."""
        try:
            spans = self._spans(POLL_S)
        except BusError as error:
            self._cluster.report_error(error)
            return  # fetched records can still be returned
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or not self._fetch_buffer.waiting(spans), POLL_S
            )

    def _spans(self, timeout_s: float) -> dict[PartitionId, tuple[int, int]]:
        """Where our partitions begin and end now."""
        self.fetcher.refresh_topics_if_due()
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self.fetcher.follows(), POLL_S)
            partition_ids = list(self._fetch_buffer.assignments())
        return self._cluster.spans(partition_ids, timeout_s)
