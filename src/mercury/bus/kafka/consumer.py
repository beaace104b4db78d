"""Reads from Kafka: a thread fetches, readers take from the fetch buffer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Future

from mercury.bus.api import Record, Start
from mercury.bus.kafka.cluster import Cluster, Commits
from mercury.bus.kafka.fetcher import Fetcher
from mercury.bus.kafka.outbox import Outbox
from mercury.model.errors import BusError

log = logging.getLogger("mercury.bus.kafka.bus")

POLL_S = 1.0  # how long poll() waits for what it knows to be there
SETTLE_S = 10.0  # how long subscribe() waits for its share of a group
CLOSE_S = 10.0


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
        self._follows_patterns = any(pattern.endswith(".*") for pattern in patterns)
        self._pending: Commits = {}  # asked to be committed
        self._assignments: dict[tuple[str, int], int] = {}  # when records were last handed out
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._fetcher = Fetcher(
            cluster, patterns, group, start, news=self._wake_readers, handover=self._hand_over
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
        return self._deliver(max_records)

    async def read_now(self, max_records: int = 512) -> list[Record]:
        if not self.closed:
            await asyncio.to_thread(self._catch_up)
        return self._deliver(max_records)

    async def read(self, max_records: int = 512, timeout_s: float | None = None) -> list[Record]:
        loop = self._loop = asyncio.get_running_loop()
        if len(self._fetch_buffer):
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
                if deadline is not None:
                    if loop.time() >= deadline:
                        break
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
                self._outbox.flush_now(CLOSE_S)  # marks may also be on their way already
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
        self._wake_readers()

    def join(self) -> None:
        """Return when that is done."""
        self._fetcher.join()

    def take_pending(self) -> Commits:
        with self._changed:
            commits, self._pending = self._pending, {}
            return commits

    def commit_now(self, commits: Commits) -> None:
        self._fetcher.commit(commits)

    def enqueue_commit_again(self, commits: Commits) -> None:
        with self._changed:
            for partition_id, offset in commits.items():
                self._pending[partition_id] = max(offset, self._pending.get(partition_id, 0))
        if not self.closed:
            self._outbox.enqueue_commit(self)

    def _hand_over(self) -> Future[None] | None:
        """What was marked as done shall not be done again by the next owner."""
        if self._pending:
            self._outbox.enqueue_commit(
                self
            )  # a commit() that is under way may not have come so far
        return self._outbox.send()

    # Handing out

    def _deliver(self, max_records: int) -> list[Record]:
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
        """Wait until what stands in our share now is on the fetch buffer, as far as it has room."""
        try:
            self._follow_now()
            with self._changed:
                partition_ids = self._fetch_buffer.partition_ids()
            spans = self._cluster.spans(partition_ids, POLL_S)
        except BusError as error:
            log.warning("%s", error)
            return  # what we have may still be handed out
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or not self._fetch_buffer.behind(spans), POLL_S
            )
            self._fetch_buffer.forget_below(spans)

    def _follow_now(self) -> None:
        if self._follows_patterns:
            self._cluster.look_if_due()
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._fetcher.follows(), POLL_S)

    def _wake_readers(self) -> None:
        """Let waiting reads look again; from any thread."""
        loop = self._loop
        if not self._waiting or loop is None or loop.is_closed():
            return
        with contextlib.suppress(RuntimeError):  # the loop closed just now
            loop.call_soon_threadsafe(self._wake_waiting)

    def _wake_waiting(self) -> None:
        for woken in tuple(self._waiting):
            _wake(woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
