"""Reads from Kafka: a thread fetches, readers take from the fetch buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future

from mercury.bus.api import Record, Start
from mercury.bus.kafka.cluster import Cluster, Commits
from mercury.bus.kafka.fetcher import Fetcher
from mercury.bus.kafka.outbox import Outbox
from mercury.bus.waiting import WaitingConsumer
from mercury.model.errors import BusError

POLL_S = 1.0  # how long poll() waits for what it knows to be there
SETTLE_S = 10.0  # how long subscribe() waits for its partitions of a group
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
        self._assignments: dict[tuple[str, int], int] = {}  # when records were last handed out
        self._fetcher = Fetcher(
            cluster, patterns, group, start, news=self.wake, handover=self._hand_over
        )
        self._changed = self._fetcher.changed
        self._fetch_buffer = self._fetcher.fetch_buffer
        try:
            if group is not None:
                self._fetcher.settle(SETTLE_S)
        except BaseException:
            self._fetcher.end()
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

    def assignments(self) -> Mapping[tuple[str, int], int]:
        return self._assignments

    def lag(self) -> int:
        if self.closed:
            return 0
        self._follow_now()
        with self._changed:
            partition_ids = self._fetch_buffer.partition_ids()
        spans = self._cluster.spans(partition_ids)
        with self._changed:
            return self._fetch_buffer.lag(spans)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self.group is not None:
                self._outbox.flush_now(CLOSE_S)  # commits may also be on their way already
        finally:
            self.end()
            if self.group is not None:
                self.join()  # the others take over when we have left

    # What the bus calls

    @property
    def ended(self) -> bool:
        return not self._fetcher.alive

    def end(self) -> None:
        """Stop reading and leave the group, soon."""
        self.closed = True
        self._fetcher.end()
        self.wake()

    def join(self) -> None:
        """Return when that is done."""
        self._fetcher.join()

    def take_pending(self) -> Commits:
        """What `commit` was called for."""
        with self._changed:
            commits, self._pending = self._pending, {}
            return commits

    def commit_now(self, commits: Commits) -> None:
        """Commit, and return when it is durable."""
        self._fetcher.commit(commits)

    def enqueue_commit_again(self, commits: Commits) -> None:
        """That failed: have it tried again, later."""
        with self._changed:
            for partition_id, offset in commits.items():
                self._pending[partition_id] = max(offset, self._pending.get(partition_id, 0))
        if not self.closed:
            self._outbox.enqueue_commit(self)

    def _hand_over(self) -> Future[None] | None:
        """What was committed shall not be done again by the next owner."""
        if self._pending:  # a commit() that is under way may not have come so far
            self._outbox.enqueue_commit(self)
        return self._outbox.send()

    # Handing out

    def _has_news(self) -> bool:
        return len(self._fetch_buffer) > 0 or self._fetcher.failure is not None

    def _take(self, max_records: int) -> list[Record]:
        with self._changed:
            if self.closed:
                return []
            records = self._fetch_buffer.take(max_records)
            if records:
                self._assignments = self._fetch_buffer.assignments()
        if not records and self._fetcher.failure is not None:
            raise self._fetcher.failure
        return records

    def _catch_up(self) -> None:
        """Wait until what stands in our partitions now is fetched, as far as there is room."""
        try:
            self._follow_now()
            with self._changed:
                partition_ids = self._fetch_buffer.partition_ids()
            spans = self._cluster.spans(partition_ids, POLL_S)
        except BusError as error:
            self._cluster.complain(error)
            return  # what we have may still be handed out
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or not self._fetch_buffer.behind(spans), POLL_S
            )

    def _follow_now(self) -> None:
        self._fetcher.look_if_due()
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._fetcher.follows(), POLL_S)
