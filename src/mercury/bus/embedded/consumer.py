"""Reads the embedded bus, alone or as a member of a group."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from mercury.bus.api import FromTime, Record, Start
from mercury.bus.embedded.assignment import (
    ALL_PARTITIONS,
    Assignment,
    TopicCursor,
    handover_is_over,
)
from mercury.bus.embedded.catalogue import FILE_ERRORS, BusFile, bus_error, explained
from mercury.bus.embedded.record_frame import read_header, records_of
from mercury.bus.embedded.wake_up import WakeUpSocket
from mercury.bus.grouping import Registry, Topic
from mercury.bus.waiting import WaitingConsumer
from mercury.model.errors import BusError

if TYPE_CHECKING:
    from mercury.bus.embedded.bus import EmbeddedBus

LEASE_S = 3.0
# A wake-up that was lost (it cannot be, but machines are imaginative) costs at most this.
SAFETY_CHECK_S = 0.5
# Beyond this many records the lag of some partitions is estimated: counting reads them all.
EXACT_LAG = 10_000


class EmbeddedConsumer(WaitingConsumer):
    """Reads topics in their listed order; a datagram wakes it."""

    def __init__(
        self,
        bus: EmbeddedBus,
        file: BusFile,
        patterns: tuple[str, ...],
        group: str | None,
        start: Start,
    ) -> None:
        super().__init__()
        self.id = uuid.uuid4().hex
        self.patterns = patterns
        self.group = group
        self.assignment = Assignment(self.id, patterns, group)
        self._bus = bus
        self._file = file
        self._start = start
        self._lease_us = int(LEASE_S * 1e6)
        self._seen_us = 0  # when we last renewed the lease
        self._unchecked = True  # look, even if no cursor is dirty: there may be new topics
        self._safety_timer: asyncio.TimerHandle | None = None
        self.wake_up_socket = WakeUpSocket(self.id)
        try:
            starts = bus.write(self._join)
        except BaseException:
            self.wake_up_socket.close()
            raise
        with bus.mutex:
            self._follow_now()
            for cursor in self.assignment.cursors:
                cursor.position = starts.get(cursor.topic.id, cursor.position)
        self._wake_up_members()

    # The interface.

    def poll(self, max_records: int = 512) -> list[Record]:
        if self.closed:
            return []
        self._keep_alive()
        self.check_all()
        return self._take(max_records)

    async def read_now(self, max_records: int = 512) -> list[Record]:
        return self.poll(max_records)

    def commit(self) -> None:
        if self.group is None or self.closed:
            return
        with self._bus.mutex:
            if self.assignment.collect_commits():
                self._bus.enqueue_commit(self)

    def lag(self) -> int:
        if self.closed:
            return 0
        with explained(self._file.path), self._bus.mutex:
            self._take_assignment()
            return sum(self._count(cursor) for cursor in self.assignment.cursors)

    def close(self) -> None:
        with self._bus.mutex:
            if self.closed:
                return
            self.closed = True
            if self._safety_timer is not None:
                self._safety_timer.cancel()
            self._stop_watching()
            try:
                with suppress(BusError):  # then the others take over when our lease ends
                    self._bus.leave(self)
            finally:
                self.wake_up_socket.close()
                self.wake()

    # Membership.

    def _join(self) -> dict[int, int]:
        """Register; return where to start in each topic if we read for no group."""
        file = self._file
        registry = self._bus.refreshed()
        topics = registry.matching(self.patterns)
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
        self._seen_us = _now_us()
        file.change_listeners()
        # Who comes holds nothing: it has released everything already.
        address = self.wake_up_socket.address
        file.execute(
            "INSERT OR REPLACE INTO listeners SELECT ?, ?, ?, ?, ?, registry_version FROM meta",
            (self.id, address, " ".join(self.patterns), self.group, self._seen_us),
        )
        return starts

    def _wake_up_members(self) -> None:
        if self.group is not None:
            self._bus.wake_up_group(self.group)

    def _keep_alive(self) -> None:
        """Renew the lease, and look for members whose lease ran out."""
        now_us = _now_us()
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

    def check_all(self) -> None:
        for cursor in self.assignment.cursors:
            cursor.dirty = True
        self._unchecked = True

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stop_watching()
        self._loop = loop
        loop.add_reader(self.wake_up_socket.fileno(), self._woken)
        self._safety_check()

    def _stop_watching(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.wake_up_socket.fileno())

    def _safety_check(self) -> None:
        if self.closed or self._loop is None or self._loop.is_closed():
            return
        self._safety_timer = self._loop.call_later(SAFETY_CHECK_S, self._safety_check)
        self._keep_alive()
        self.check_all()
        self.wake()

    def _woken(self) -> None:
        self._collect_wake_ups()
        self.wake()

    def _collect_wake_ups(self) -> None:
        datagrams = self.wake_up_socket.drain()
        if datagrams is None:
            self.check_all()
            return
        for version, topic_id, frame in datagrams:
            cursor = self.assignment.cursor_of.get(topic_id)
            if cursor is None:
                self._unchecked = True
            elif cursor.dirty:
                continue
            # Only what continues, under the registry we follow, what we already have.
            elif (
                frame
                and version == self.assignment.version
                and cursor.can_take(read_header(frame).first)
            ):
                cursor.arrived += records_of(cursor.topic.name, frame)
            else:
                cursor.dirty = True

    # Following the group; called with the bus's mutex held.

    def follow(self, registry: Registry) -> None:
        """Take in who is there now, inside a transaction."""
        self.assignment.follow(registry, _now_us(), self._committed)

    def _follow_now(self) -> None:
        self._file.execute("BEGIN")
        try:
            self.follow(self._bus.refreshed())
        finally:
            self._file.rollback()  # nothing was written, and this works after an error too

    def _committed(self, topic: Topic) -> dict[int, int]:
        rows = self._file.execute(
            'SELECT partition, offset FROM committed WHERE "group" = ? AND topic = ?',
            (self.group, topic.id),
        )
        return dict(rows)

    def _take_assignment(self) -> bool:
        """Follow the registry as far as the others let us; False if we may not read just now."""
        assignment = self.assignment
        self._follow_now()
        if assignment.handing_over:
            if assignment.has_uncommitted:
                return False  # the reader is at work with it
            try:
                self._bus.flush_now()
            except BusError:
                return False
            self._follow_now()
            if assignment.handing_over:
                return False
        if assignment.unreleased and not assignment.orphaned:
            self._release()
            assignment.unreleased = False
        awaited = assignment.awaited
        if awaited is not None and (
            handover_is_over(awaited, _now_us()) or self._released_by_others(awaited.version)
        ):
            assignment.awaited = None
            assignment.invalidate()  # the others have committed what they held: look how far
            self._follow_now()
        return True

    def _release(self) -> None:
        """Tell the members that we hold nothing that is not ours in the version we follow."""
        self._bus.write(
            lambda: self._file.execute(
                "UPDATE listeners SET released = ? WHERE id = ?", (self.assignment.version, self.id)
            )
        )
        self._wake_up_members()

    def _released_by_others(self, version: int) -> bool:
        (behind,) = self._file.execute(
            'SELECT count(*) FROM listeners WHERE "group" = ? AND id != ? AND released < ?',
            (self.group, self.id, version),
        ).fetchone()
        return bool(behind == 0)

    # Reading.

    def _may_have_records(self) -> bool:
        return self._unchecked or any(one.dirty or one.arrived for one in self.assignment.cursors)

    def _take(self, max_records: int) -> list[Record]:
        try:
            records = self._fetch(max_records)
            if self.assignment.orphaned and not self.closed:
                if self.group is not None:
                    records = []  # somebody else's by now; what becomes ours again is read again
                self._bus.write(self._join)
                self._wake_up_members()
                self.assignment.invalidate()
                records += self._fetch(max_records - len(records))
            return records
        except FILE_ERRORS as error:
            raise bus_error(error, self._file.path) from error

    def _fetch(self, max_records: int) -> list[Record]:
        records: list[Record] = []
        with self._bus.mutex:
            if self.closed:
                return records
            if self._loop is None:  # else the loop collects them as they come
                self._collect_wake_ups()
            while self._unchecked or self._changed() or not self._read_dirty(max_records, records):
                self._unchecked = not self._take_assignment()
                if self._unchecked:
                    break
            if self.assignment.changed:
                self._assignments = self.assignment.epochs()
        return records

    def _changed(self) -> bool:
        """Whether the registry is another than the one we follow."""
        return self._file.lock.version() != self.assignment.version

    def _read_dirty(self, max_records: int, records: list[Record]) -> bool:
        """Read what is there, in order; False if our partitions changed before we were through."""
        for cursor in self.assignment.cursors:
            if cursor.arrived:
                if cursor.dirty:
                    cursor.arrived = []  # is read with the rest
                elif len(records) < max_records:
                    records += cursor.deliver(max_records - len(records))
            while cursor.dirty and len(records) < max_records:
                found = self._read_some(cursor, max_records - len(records))
                if found is None:
                    return False
                records += found
        return True

    def _read_some(self, cursor: TopicCursor, limit: int) -> list[Record] | None:
        owned = cursor.owned
        if owned is not None and not owned:
            cursor.dirty = False
            return []
        # Nobody must look through the same quiet partitions or damage over and over.
        end = self._file.log(cursor.topic).state().next - 1
        found = self._select(cursor, limit)
        # Whoever took over some of our partitions starts with what came after: not ours to read.
        if self.group is not None and self._changed():
            return None
        if found:
            cursor.position = found[-1].offset
        if len(found) < limit:
            cursor.dirty = False
            cursor.position = max(cursor.position, end)
        return cursor.accept(found)

    def _select(self, cursor: TopicCursor, limit: int) -> list[Record]:
        return self._file.log(cursor.topic).read(cursor.position, limit, cursor.owned)

    def _count(self, cursor: TopicCursor) -> int:
        topic = cursor.topic
        log = self._file.log(topic)
        state = log.state()
        span = max(0, state.next - max(cursor.position + 1, state.oldest))
        if cursor.owned is None and not cursor.ahead:
            return span
        if span > EXACT_LAG:
            return span * len(cursor.partitions) // topic.partitions
        waiting = log.read(cursor.position, span, cursor.owned)
        return sum(one.offset > cursor.ahead.get(one.partition, 0) for one in waiting)


def _now_us() -> int:
    """By the clock that all processes of a machine share, and that nobody sets."""
    return time.monotonic_ns() // 1000


def start_position(file: BusFile, topic: Topic, start: Start) -> int:
    """The offset before the one to start with."""
    if isinstance(start, FromTime):
        return file.log(topic).offset_at(start.timestamp_us) - 1
    return file.log(topic).state().next - 1 if start == "latest" else 0
