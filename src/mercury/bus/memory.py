"""A bus inside one process: for tests, and for everything on one event loop."""

from __future__ import annotations

import bisect
import itertools
import threading
import time
import uuid
from collections.abc import Sequence

from mercury.bus.api import FromOffset, FromTime, Headers, Record, Retention, Start
from mercury.bus.buffering import RECORD_OVERHEAD_BYTES, Batch, BufferedBus
from mercury.bus.cursor import ALL_PARTITIONS, TopicCursor
from mercury.bus.group_consumer import GroupConsumer
from mercury.bus.grouping import (
    Listener,
    Registry,
    Topic,
    check_patterns,
    named_topics,
    partition_of,
)
from mercury.bus.headers import check_headers


class MemoryTopic:
    """Records of one topic, in order of offset and of time."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.records: list[Record] = []
        self.next_offset = 1
        self.spread = itertools.count()  # partitions for records without a key

    def after(self, offset: int) -> int:
        """Index of the first record after an offset."""
        first = self.records[0].offset if self.records else self.next_offset
        return max(0, offset + 1 - first)


class MemoryLog:
    """Topics, committed offsets and consumers that the connections of a process share."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.registry = Registry(version=0)
        self.topics: dict[int, MemoryTopic] = {}
        self.committed: dict[tuple[str, int], dict[int, int]] = {}
        self.born_after: dict[str, int] = {}  # group -> newest topic when it began
        self.consumers: dict[str, MemoryConsumer] = {}

    def change(self, topics: tuple[Topic, ...], listeners: tuple[Listener, ...]) -> None:
        moved_us = self.registry.moved_us
        if listeners != self.registry.listeners:
            moved_us = time.monotonic_ns() // 1000
        self.registry = Registry(self.registry.version + 1, topics, listeners, moved_us)

    def topic(self, name: str, partitions: int) -> MemoryTopic:
        known = self.registry.by_name.get(name)
        if known is None:
            known = Topic(len(self.topics) + 1, name, partitions)
            self.topics[known.id] = MemoryTopic(known)
            self.change((*self.registry.topics, known), self.registry.listeners)
        return self.topics[known.id]

    def start_position(self, topic: MemoryTopic, start: Start) -> int:
        """The offset before the one to start with."""
        if isinstance(start, FromOffset):
            return start.offset - 1
        if isinstance(start, FromTime):
            index = bisect.bisect_left(topic.records, start.timestamp_us, key=_timestamp)
            if index < len(topic.records):
                return topic.records[index].offset - 1
            return topic.next_offset - 1
        return topic.next_offset - 1 if start == "latest" else 0


def _timestamp(record: Record) -> int:
    return record.timestamp_us


def _size(record: Record) -> int:
    return len(record.value) + len(record.key) + RECORD_OVERHEAD_BYTES


class MemoryBus(BufferedBus):
    """One connection to a log in memory."""

    def __init__(
        self, log: MemoryLog | None = None, *, retention: Retention, partitions: int = 16
    ) -> None:
        super().__init__("the bus in memory")
        self.log = MemoryLog() if log is None else log
        self.mutex = self.log.mutex  # connections may live in different threads
        self._retention = retention
        self._partitions = partitions
        self._consumers: set[MemoryConsumer] = set()

    def _pack_headers(self, headers: Headers) -> Headers:
        return check_headers(headers)

    def _write(self, batch: Batch, committing: set[GroupConsumer]) -> None:
        now_us = time.time_ns() // 1000
        touched: dict[MemoryConsumer, None] = {}
        for name in list(batch):
            pending = batch.pop(name)
            log = self.log.topic(name, self._partitions)
            stamp_us = max(now_us, log.records[-1].timestamp_us) if log.records else now_us
            partitions = log.topic.partitions
            for key, headers, value in pending:
                part = partition_of(key, partitions) if key else next(log.spread) % partitions
                assert isinstance(headers, tuple)
                log.records.append(
                    Record(name, part, log.next_offset, stamp_us, key, headers, value)
                )
                log.next_offset += 1
            for listener in self.log.registry.audience(name):
                consumer = self.log.consumers[listener.id]
                consumer.wake_up(log.topic.id)
                touched[consumer] = None
        for committed in committing:
            self.write_commits(committed)
        for consumer in touched:
            consumer.wake()

    def write_commits(self, consumer: GroupConsumer) -> None:
        consumer.follow(self.log.registry)
        for topic_id, commits in consumer.pending_commits.items():
            assert consumer.group is not None
            committed = self.log.committed.setdefault((consumer.group, topic_id), {})
            for part, offset in commits.items():
                committed[part] = max(committed.get(part, 0), offset)
        consumer.pending_commits.clear()

    def subscribe(
        self, topics: Sequence[str], *, group: str | None = None, start: Start = "latest"
    ) -> MemoryConsumer:
        with self.mutex:
            self.flush_now()  # what was appended before is not "after"
            for name in named_topics(check_patterns(topics)):
                self.log.topic(name, self._partitions)
            consumer = MemoryConsumer(self, check_patterns(topics), group, start)
            self._consumers.add(consumer)
            return consumer

    def topics(self) -> list[str]:
        with self.mutex:
            return [topic.name for topic in self.log.registry.topics]

    def enforce_retention(self) -> int:
        with self.mutex:
            self._check_open()
            removed = 0
            if self._retention.max_age_s is not None:
                horizon_us = time.time_ns() // 1000 - int(self._retention.max_age_s * 1e6)
                for log in self.log.topics.values():
                    count = bisect.bisect_left(log.records, horizon_us, key=_timestamp)
                    del log.records[:count]
                    removed += count
            if self._retention.max_bytes is not None:
                removed += self._trim(self._retention.max_bytes)
            return removed

    def _trim(self, max_bytes: int) -> int:
        logs = self.log.topics.values()
        excess = sum(_size(one) for log in logs for one in log.records) - max_bytes
        removed: dict[int, int] = {}
        for record, topic_id in sorted(
            ((one, log.topic.id) for log in logs for one in log.records),
            key=lambda entry: (entry[0].timestamp_us, entry[1], entry[0].offset),
        ):
            if excess <= 0:
                break
            excess -= _size(record)
            removed[topic_id] = removed.get(topic_id, 0) + 1
        for topic_id, count in removed.items():
            del self.log.topics[topic_id].records[:count]
        return sum(removed.values())

    def close(self) -> None:
        with self.mutex:
            if self.closed:
                return
            self._flush()
            for consumer in tuple(self._consumers):
                consumer.close()
            self.closed = True
            self._abandon_waiting()

    def forget(self, consumer: MemoryConsumer) -> None:
        self._consumers.discard(consumer)


class MemoryConsumer(GroupConsumer):
    """Reads a log in memory."""

    _bus: MemoryBus

    def __init__(
        self, bus: MemoryBus, patterns: tuple[str, ...], group: str | None, start: Start
    ) -> None:
        super().__init__(bus, uuid.uuid4().hex, patterns, group, start)
        self.released = 0  # the version whose shares we have let go for
        self._log = bus.log
        self._start = start
        self._register()

    def _register(self) -> None:
        log = self._log
        if self.group is not None:
            born_after = log.born_after.setdefault(self.group, len(log.topics))
            for topic in log.registry.topics:
                if topic.id <= born_after:
                    base = log.start_position(log.topics[topic.id], self._start)
                    log.committed.setdefault((self.group, topic.id), {ALL_PARTITIONS: base})
        listener = Listener(self.id, "", self.patterns, self.group)
        log.consumers[self.id] = self
        log.change(log.registry.topics, (*log.registry.listeners, listener))
        self.released = log.registry.version
        self.follow(log.registry)
        if self.group is None:
            for cursor in self._cursors:
                start = log.start_position(log.topics[cursor.topic.id], self._start)
                cursor.position = start
        else:
            self._wake_members()

    def _release(self) -> None:
        self.released = self._version
        self._wake_members()

    def _released_by_others(self, version: int) -> bool:
        assert self.group is not None
        members = self._log.registry.members(self.group)
        return all(
            self._log.consumers[one.id].released >= version for one in members if one.id != self.id
        )

    def _leave(self) -> None:
        log = self._log
        self._bus.flush_now()
        self._bus.write_commits(self)
        log.consumers.pop(self.id, None)
        self._bus.forget(self)
        others = tuple(one for one in log.registry.listeners if one.id != self.id)
        log.change(log.registry.topics, others)
        self._wake_members()

    def _wake_members(self) -> None:
        if self.group is not None:
            for member in self._log.registry.members(self.group):
                consumer = self._log.consumers[member.id]
                consumer.wake_up(None)
                consumer.wake()

    def wake_up(self, topic_id: int | None) -> None:
        cursor = None if topic_id is None else self._cursor_of.get(topic_id)
        if cursor is None:
            self._unchecked = True
        else:
            cursor.dirty = True

    def _begin(self) -> Registry:
        return self._log.registry

    def _end(self) -> None:
        pass

    def _changed(self) -> bool:
        return self._log.registry.version != self._version

    def _select(self, cursor: TopicCursor, limit: int) -> list[Record]:
        log = self._log.topics[cursor.topic.id]
        first = log.after(cursor.position)
        if cursor.owned is None:
            return log.records[first : first + limit]
        owned = cursor.owned
        mine = (one for one in itertools.islice(log.records, first, None) if one.partition in owned)
        return list(itertools.islice(mine, limit))

    def _end_offset(self, topic: Topic) -> int:
        return self._log.topics[topic.id].next_offset - 1

    def _count(self, cursor: TopicCursor) -> int:
        log = self._log.topics[cursor.topic.id]
        waiting = log.records[log.after(cursor.position) :]
        owned = cursor.owned
        return sum(
            (owned is None or one.partition in owned)
            and one.offset > cursor.ahead.get(one.partition, 0)
            for one in waiting
        )

    def _committed(self, topic: Topic) -> dict[int, int]:
        assert self.group is not None
        return self._log.committed.get((self.group, topic.id), {})
