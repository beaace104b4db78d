"""Reads the bus file, alone or as a member of a group."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from typing import TYPE_CHECKING

from mercury.bus.api import FromOffset, FromTime, Record, Start
from mercury.bus.cursor import ALL_PARTITIONS, TopicCursor
from mercury.bus.embedded.catalogue import BusFile, bus_error
from mercury.bus.embedded.record_frame import read_header, records_of
from mercury.bus.embedded.wake_up import WakeUpSocket
from mercury.bus.group_consumer import GroupConsumer
from mercury.bus.grouping import Registry, Topic, rank_of
from mercury.model.errors import BusError

if TYPE_CHECKING:
    from mercury.bus.embedded.bus import EmbeddedBus

LEASE_S = 3.0
# Beyond this many records the lag of a partial share is estimated: counting reads them all.
EXACT_LAG = 10_000


class EmbeddedConsumer(GroupConsumer):
    """A listener of the bus file, woken by wake-ups."""

    _bus: EmbeddedBus

    def __init__(
        self,
        bus: EmbeddedBus,
        file: BusFile,
        patterns: tuple[str, ...],
        group: str | None,
        start: Start,
        lease_s: float = LEASE_S,
    ) -> None:
        super().__init__(bus, uuid.uuid4().hex, patterns, group, start)
        self._file = file
        self._start = start
        self._lease_us = int(lease_s * 1e6)
        self._seen_us = 0  # when we last renewed the lease
        self.wake_up_socket = WakeUpSocket(self.id)
        try:
            starts = self._bus.write(self._join)
        except BaseException:
            self.wake_up_socket.close()
            raise
        with bus.mutex:
            self._refresh()
            for cursor in self._cursors:
                cursor.position = starts.get(cursor.topic.id, cursor.position)
        self._wake_up_members()

    # Membership.

    def _join(self) -> dict[int, int]:
        """Register; return where to start in each topic if we read for no group."""
        file = self._file
        registry = self._bus.refreshed()
        topics = [one for one in registry.topics if rank_of(self.patterns, one.name) is not None]
        starts: dict[int, int] = {}
        if self.group is None:
            starts = {topic.id: start_position(file, topic, self._start) for topic in topics}
        else:
            newest = registry.topics[-1].id if registry.topics else 0
            file.execute("INSERT OR IGNORE INTO groups VALUES (?, ?)", (self.group, newest))
            (born_after,) = file.execute(
                "SELECT born_after_topic FROM groups WHERE name = ?", (self.group,)
            ).fetchone()
            # A topic younger than the group is read from its beginning, whoever joins when.
            file.executemany(
                "INSERT OR IGNORE INTO committed VALUES (?, ?, ?, ?)",
                [
                    (self.group, one.id, ALL_PARTITIONS, start_position(file, one, self._start))
                    for one in topics
                    if one.id <= born_after
                ],
            )
        self._seen_us = time.monotonic_ns() // 1000
        file.change_listeners()
        # Who comes holds nothing: it has let go of everything already.
        file.execute(
            "INSERT OR REPLACE INTO listeners SELECT ?, ?, ?, ?, ?, registry_version FROM meta",
            (
                self.id,
                self.wake_up_socket.address,
                " ".join(self.patterns),
                self.group,
                self._seen_us,
            ),
        )
        return starts

    def _register(self) -> None:
        self._bus.write(self._join)
        self._wake_up_members()

    def _leave(self) -> None:
        try:
            self._bus.leave(self)
        finally:
            self.wake_up_socket.close()

    def _release(self) -> None:
        self._bus.write(
            lambda: self._file.execute(
                "UPDATE listeners SET released = ? WHERE id = ?", (self._version, self.id)
            )
        )
        self._wake_up_members()

    def _released_by_others(self, version: int) -> bool:
        (behind,) = self._file.execute(
            'SELECT count(*) FROM listeners WHERE "group" = ? AND id != ? AND released < ?',
            (self.group, self.id, version),
        ).fetchone()
        return bool(behind == 0)

    def _wake_up_members(self) -> None:
        if self.group is not None:
            self._bus.wake_up_group(self.group)

    def _keep_alive(self) -> None:
        now_us = time.monotonic_ns() // 1000
        if now_us - self._seen_us < self._lease_us // 3:
            return
        self._seen_us = now_us
        try:
            self._bus.renew(self, now_us, self._lease_us)
        except BusError:
            # A bus that cannot be written now is reported by whoever appends; the next beat
            # comes in time if this passes.
            return

    # Waking up.

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self.wake_up_socket.fileno(), self._woken)

    def _detach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.wake_up_socket.fileno())

    def _woken(self) -> None:
        self._collect_wake_ups()
        self.wake()

    def _collect_wake_ups(self) -> None:
        topics, datagrams = self.wake_up_socket.drain()
        if topics is None:
            self.check_all()
            return
        for topic_id in topics:
            self._mark_dirty(topic_id)
        for version, topic_id, frame in datagrams:
            cursor = self._cursor_of.get(topic_id)
            # Only what continues, under the registry we follow, what we already have.
            if cursor is None or version != self._version:
                self._mark_dirty(topic_id)
            elif not cursor.can_take(read_header(frame).first):
                cursor.dirty = True
            elif not cursor.dirty:
                cursor.take(records_of(cursor.topic.name, frame))

    def _mark_dirty(self, topic_id: int) -> None:
        cursor = self._cursor_of.get(topic_id)
        if cursor is not None:
            cursor.dirty = True
        else:
            self._unchecked = True

    # Reading.

    def lag(self) -> int:
        try:
            return super().lag()
        except sqlite3.Error as error:
            raise bus_error(error, self._file.path) from error

    def _fetch(self, max_records: int) -> list[Record]:
        try:
            return super()._fetch(max_records)
        except sqlite3.Error as error:
            raise bus_error(error, self._file.path) from error

    def _begin(self) -> Registry:
        self._file.execute("BEGIN")
        try:
            return self._bus.refreshed()
        except BaseException:
            self._file.rollback()
            raise

    def _changed(self) -> bool:
        return self._file.lock.version() != self._version

    def _end(self) -> None:
        self._file.rollback()  # nothing was written, and this works after an error too

    def _refresh(self) -> None:
        registry = self._begin()
        try:
            self.follow(registry)
        finally:
            self._end()

    def _select(self, cursor: TopicCursor, limit: int) -> list[Record]:
        return self._file.log(cursor.topic).read(cursor.position, limit, cursor.owned)

    def _end_offset(self, topic: Topic) -> int:
        return self._file.log(topic).state().next - 1

    def _count(self, cursor: TopicCursor) -> int:
        topic = cursor.topic
        log = self._file.log(topic)
        state = log.state()
        span = max(0, state.next - max(cursor.position + 1, state.oldest))
        if cursor.owned is None and not cursor.ahead:
            return span
        if span > EXACT_LAG:
            assignment = len(cursor.owned) if cursor.owned is not None else topic.partitions
            return span * assignment // topic.partitions
        waiting = log.read(cursor.position, span, cursor.owned)
        return sum(one.offset > cursor.ahead.get(one.partition, 0) for one in waiting)

    def _committed(self, topic: Topic) -> dict[int, int]:
        rows = self._file.execute(
            'SELECT partition, offset FROM committed WHERE "group" = ? AND topic = ?',
            (self.group, topic.id),
        )
        return dict(rows)


def start_position(file: BusFile, topic: Topic, start: Start) -> int:
    """The offset before the one to start with."""
    if isinstance(start, FromOffset):
        return start.offset - 1
    if isinstance(start, FromTime):
        return file.log(topic).offset_at(start.timestamp_us) - 1
    return file.log(topic).state().next - 1 if start == "latest" else 0
