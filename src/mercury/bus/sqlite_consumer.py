"""Reads the bus file, alone or as a member of a group."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from mercury.bus.api import FromOffset, FromTime, Record, Start
from mercury.bus.consumer import GroupConsumer
from mercury.bus.cursor import ALL_PARTITIONS, TopicCursor
from mercury.bus.grouping import Registry, Topic, rank_of
from mercury.bus.headers import decode_headers
from mercury.bus.sqlite_schema import TOMBSTONE, BusFile, bus_error, table_of
from mercury.bus.wakeup import Doorbell, Row
from mercury.model.errors import BusError

if TYPE_CHECKING:
    from mercury.bus.sqlite import SqliteBus

LEASE_S = 3.0
# Beyond this many records the lag of a partial share is estimated: counting reads them all.
EXACT_LAG = 10_000


class SqliteConsumer(GroupConsumer):
    """A listener of the bus file, woken by nudges."""

    _bus: SqliteBus

    def __init__(
        self,
        bus: SqliteBus,
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
        self._statements: dict[tuple[int, frozenset[int] | None], str] = {}
        self.doorbell = Doorbell(self.id)
        try:
            starts = self._bus.write(self._join)
        except BaseException:
            self.doorbell.close()
            raise
        with bus.mutex:
            self._refresh()
            for cursor in self._cursors:
                cursor.position = starts.get(cursor.topic.id, cursor.position)
        self._nudge_members()

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
        file.execute(
            "INSERT OR REPLACE INTO listeners VALUES (?, ?, ?, ?, ?)",
            (self.id, self.doorbell.address, " ".join(self.patterns), self.group, self._seen_us),
        )
        file.change_registry()
        return starts

    def _register(self) -> None:
        self._bus.write(self._join)
        self._nudge_members()

    def _leave(self) -> None:
        try:
            self._bus.leave(self)
        finally:
            self.doorbell.close()

    def _nudge_members(self) -> None:
        if self.group is not None:
            self._bus.nudge_group(self.group)

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
        loop.add_reader(self.doorbell.fileno(), self._nudged)

    def _detach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.doorbell.fileno())

    def _nudged(self) -> None:
        self._collect_nudges()
        self.wake()

    def _collect_nudges(self) -> None:
        topics, parcels = self.doorbell.drain()
        if topics is None:
            self.check_all()
            return
        for topic_id in topics:
            self._mark_dirty(topic_id)
        for version, news in parcels:
            for topic_id, first, rows in news:
                cursor = self._cursor_of.get(topic_id)
                # Only what continues, under the registry we follow, what we already have.
                if cursor is None or version != self._version or not cursor.can_take(first):
                    self._mark_dirty(topic_id)
                elif not cursor.dirty:
                    cursor.take(_records(cursor.topic.name, first, rows))

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
        topic, owned = cursor.topic, cursor.owned
        statement = self._statements.get((topic.id, owned))
        if statement is None:
            share = f"IN ({','.join(map(str, sorted(owned)))})" if owned else f"> {TOMBSTONE}"
            statement = self._statements[topic.id, owned] = (
                "SELECT partition, offset, timestamp_us, key, headers, value"
                f" FROM {table_of(topic.id)} WHERE offset > ? AND partition {share}"
                " ORDER BY offset LIMIT ?"
            )
        name = topic.name
        return [
            Record(name, part, at, time_us, key, decode_headers(head) if head else (), value)
            for part, at, time_us, key, head, value in self._file.execute(
                statement, (cursor.position, limit)
            )
        ]

    def _end_offset(self, topic: Topic) -> int:
        return end_offset(self._file, topic)

    def _count(self, cursor: TopicCursor) -> int:
        topic = cursor.topic
        first, last = self._file.execute(
            f"SELECT (SELECT min(offset) FROM {table_of(topic.id)} WHERE partition > {TOMBSTONE}),"
            f" (SELECT max(offset) FROM {table_of(topic.id)})"
        ).fetchone()
        if first is None:
            return 0
        # Only retention removes records, and only the oldest: what is there is dense.
        span: int = max(0, last - max(cursor.position, first - 1))
        if cursor.owned is None and not cursor.ahead:
            return span
        share = len(cursor.owned) if cursor.owned is not None else topic.partitions
        if span > EXACT_LAG:
            return span * share // topic.partitions
        rows = self._file.execute(
            f"SELECT partition, offset FROM {table_of(topic.id)} WHERE offset > ?",
            (cursor.position,),
        )
        owned = cursor.owned
        return sum(
            (owned is None or part in owned) and at > cursor.ahead.get(part, 0) for part, at in rows
        )

    def _committed(self, topic: Topic) -> dict[int, int]:
        rows = self._file.execute(
            'SELECT partition, offset FROM committed WHERE "group" = ? AND topic = ?',
            (self.group, topic.id),
        )
        return dict(rows)


def _records(topic: str, first: int, rows: list[Row]) -> list[Record]:
    return [
        Record(topic, part, at, time_us, key, decode_headers(head) if head else (), value)
        for at, (part, time_us, key, head, value) in enumerate(rows, first)
    ]


def end_offset(file: BusFile, topic: Topic) -> int:
    """Offset of the newest record."""
    (last,) = file.execute(f"SELECT max(offset) FROM {table_of(topic.id)}").fetchone()
    return last or 0


def start_position(file: BusFile, topic: Topic, start: Start) -> int:
    """The offset before the one to start with."""
    if isinstance(start, FromOffset):
        return start.offset - 1
    if isinstance(start, FromTime):
        return _position_before(file, topic, start.timestamp_us)
    return end_offset(file, topic) if start == "latest" else 0


def _position_before(file: BusFile, topic: Topic, timestamp_us: int) -> int:
    """Binary search: records are stamped under the write lock, so time grows with the offset."""
    look = partial(
        file.execute,
        f"SELECT offset, timestamp_us FROM {table_of(topic.id)} WHERE offset >= ? LIMIT 1",
    )
    first = look((0,)).fetchone()
    if first is None:
        return 0
    low, high = first[0], end_offset(file, topic) + 1
    while low < high:
        middle = (low + high) // 2
        if look((middle,)).fetchone()[1] < timestamp_us:
            low = middle + 1
        else:
            high = middle
    return int(low) - 1
