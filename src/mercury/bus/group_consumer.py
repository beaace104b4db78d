"""What every embedded consumer does: take its share, read in order, mark, wait."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from mercury.bus.api import FromOffset, Record, Start
from mercury.bus.buffering import BufferedBus
from mercury.bus.cursor import TopicCursor, committed_position
from mercury.bus.grouping import Registry, Topic, rank_of
from mercury.model.errors import BusError

# A wake-up that was lost (it cannot be, but machines are imaginative) costs at most this.
SAFETY_CHECK_S = 0.5
# When members come and go: how long who loses a share may take to mark what it holds of it.
HANDOVER_S = 2.0


class GroupConsumer(ABC):
    """Reads topics in their listed order; subclasses know where records and offsets are kept."""

    def __init__(
        self,
        bus: BufferedBus,
        listener_id: str,
        patterns: tuple[str, ...],
        group: str | None,
        start: Start,
    ) -> None:
        self.id = listener_id
        self.patterns = patterns
        self.group = group
        self.pending_commits: dict[int, dict[int, int]] = {}  # topic id -> partition -> offset
        self.closed = False
        self._bus = bus
        self._late_position = start.offset - 1 if isinstance(start, FromOffset) else 0
        self._registry: Registry | None = None  # what the cursors belong to
        self._version = -1  # of that
        self._unchecked = True  # look, even if no cursor is dirty: there may be new topics
        self._cursors: list[TopicCursor] = []
        self._cursor_of: dict[int, TopicCursor] = {}
        self._takes = 0  # how often partitions became ours
        self._assignments_changed = True
        self._assignments: dict[tuple[str, int], int] = {}  # when records were last handed out
        self._orphaned = False  # others took us for dead; register again
        self._members: frozenset[str] = frozenset()  # of our group, whose shares we follow
        self._letting_go = False  # these have changed, and what we hold is not marked yet
        self._unreleased = False  # we have let go, and not told the others
        self._awaited: Registry | None = None  # whose new shares the others may not have let go of
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._safety_timer: asyncio.TimerHandle | None = None

    # What a subclass provides. All but `_register` and `_leave` are
    # called with the bus's mutex held.

    @abstractmethod
    def _begin(self) -> Registry:
        """Start one consistent view and return its registry."""

    @abstractmethod
    def _end(self) -> None:
        """End the view."""

    @abstractmethod
    def _changed(self) -> bool:
        """Whether the registry changed since `follow`, as far as anything read until now shows."""

    @abstractmethod
    def _select(self, cursor: TopicCursor, limit: int) -> list[Record]:
        """Read owned records after the cursor, in order of offset."""

    @abstractmethod
    def _end_offset(self, topic: Topic) -> int:
        """Offset of the newest record."""

    @abstractmethod
    def _count(self, cursor: TopicCursor) -> int:
        """Count owned records after the cursor."""

    @abstractmethod
    def _committed(self, topic: Topic) -> dict[int, int]:
        """Read the group's committed offsets of a topic."""

    @abstractmethod
    def _register(self) -> None:
        """Tell the others that we are here (again)."""

    @abstractmethod
    def _release(self) -> None:
        """Tell the members that we hold nothing that is not our share in the version we follow."""

    @abstractmethod
    def _released_by_others(self, version: int) -> bool:
        """Whether every other member has told so for this version or a later one."""

    @abstractmethod
    def _leave(self) -> None:
        """Tell the others that we are gone, writing `pending_marks` before."""

    def _collect_wake_ups(self) -> None:  # noqa: B027
        """Mark the cursors dirty that something was appended for."""

    def _keep_alive(self) -> None:  # noqa: B027
        """Renew the lease, and look for members whose lease ran out."""

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:  # noqa: B027
        """Let the loop watch for wake-ups."""

    def _detach(self, loop: asyncio.AbstractEventLoop) -> None:  # noqa: B027
        """Undo `_attach`."""

    # The interface.

    def poll(self, max_records: int = 512) -> list[Record]:
        if self.closed:
            return []
        self._keep_alive()
        self.check_all()
        return self._fetch(max_records)

    async def read_now(self, max_records: int = 512) -> list[Record]:
        return self.poll(max_records)

    async def read(self, max_records: int = 512, timeout_s: float | None = None) -> list[Record]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop and not self.closed:
            self._watch(loop)
        if self._has_news():
            # Let the loop flush what a reader appends that is always behind.
            await asyncio.sleep(0)
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not self.closed:
            if self._has_news():
                records = self._fetch(max_records)
                if records:
                    return records
            if deadline is not None and loop.time() >= deadline:
                break
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting.add(woken)
            timer = None if deadline is None else loop.call_at(deadline, _wake, woken)
            try:
                await woken
            finally:
                self._waiting.discard(woken)
                if timer is not None:
                    timer.cancel()
        return []

    def commit(self) -> None:
        if self.group is None or self.closed:
            return
        with self._bus.mutex:
            for cursor in self._cursors:
                commits = cursor.take_commits()
                if commits:
                    self.pending_commits.setdefault(cursor.topic.id, {}).update(commits)
            if self.pending_commits:
                self._bus.enqueue_commit(self)

    def assignments(self) -> Mapping[tuple[str, int], int]:
        return self._assignments

    def lag(self) -> int:
        if self.closed:
            return 0
        with self._bus.mutex:
            self._take_assignments()
            self._begin()
            try:
                return sum(self._count(cursor) for cursor in self._cursors)
            finally:
                self._end()

    def close(self) -> None:
        with self._bus.mutex:
            if self.closed:
                return
            self.closed = True
            self._bus.unmark(self)
            if self._safety_timer is not None:
                self._safety_timer.cancel()
            loop = self._loop
            if loop is not None and not loop.is_closed():
                self._detach(loop)
            try:
                self._leave()
            finally:
                self.wake()

    # What the bus calls.

    def wake(self) -> None:
        """Let waiting reads look again; from any thread."""
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
            loop.call_soon_threadsafe(self._wake_waiting)

    def _wake_waiting(self) -> None:
        for woken in tuple(self._waiting):
            _wake(woken)

    def distrust(self) -> None:
        """Look at the registry again: the last one seen may have been undone."""
        self._registry, self._version = None, -1

    def check_all(self) -> None:
        for cursor in self._cursors:
            cursor.dirty = True
        self._unchecked = True

    def follow(self, registry: Registry) -> None:
        """Take in new topics and the share of each that is ours now.

        When members came or went, what we hold is marked first; then we have let go of what is
        not ours any more, and wait with what is newly ours until the others have, too. Nobody
        waits longer than HANDOVER_S: marks for partitions that are no longer ours are dropped
        then. Whoever owns them reads from what was committed before, and only the owner may
        move that.
        """
        if registry is self._registry:
            self._letting_go = False
            return
        self._orphaned = registry.listener(self.id) is None
        if self.group is not None and not self._orphaned:
            members = frozenset(one.id for one in registry.members(self.group))
            if members != self._members:
                if self._holds_uncommitted() and not _handed_over(registry):
                    self._letting_go = True
                    return
                self._members = members
                self._unreleased = True
                self._awaited = registry if len(members) > 1 else None
        self._letting_go = False
        self._assignments_changed = True
        self._registry, self._version = registry, registry.version
        for known in self._cursors:
            known.distrust_arrived()
        if self._orphaned and self.group is not None:
            self.pending_commits.clear()
            self._cursors, self._cursor_of = [], {}
            self._members, self._awaited = frozenset(), None
            return
        ranked: list[tuple[int, int, TopicCursor]] = []
        for topic in registry.topics:
            rank = rank_of(self.patterns, topic.name)
            if rank is None:
                continue
            cursor = self._cursor_of.get(topic.id)
            if cursor is None:
                cursor = TopicCursor(topic, self._late_position)
                if self.group is not None:
                    cursor.owned = frozenset()
            if self.group is not None:
                assignment = registry.assignment(self.id, self.group, topic)
                if self._awaited is not None:
                    assignment &= cursor.partitions
                self._take_assignment(cursor, assignment)
            ranked.append((rank, topic.id, cursor))
        ranked.sort(key=lambda entry: entry[:2])
        self._cursors = [cursor for _, _, cursor in ranked]
        self._cursor_of = {cursor.topic.id: cursor for cursor in self._cursors}

    def _take_assignment(self, cursor: TopicCursor, assignment: frozenset[int]) -> None:
        topic = cursor.topic
        before = cursor.partitions
        if assignment == before:
            return
        uncommitted = cursor.uncommitted(assignment & before)
        committed = self._committed(topic)
        positions, taken = {}, {}
        self._takes += 1
        for part in assignment:
            at = committed_position(committed, part)
            # A partition that stayed ours goes on where we are: what we hold is in good hands.
            positions[part] = max(at, cursor.position_in(part)) if part in before else at
            stayed = part in before and at <= cursor.position_in(part)
            taken[part] = cursor.taken.get(part, self._takes) if stayed else self._takes
        cursor.place(positions)
        cursor.taken = taken
        cursor.delivered = uncommitted
        commits = self.pending_commits.pop(topic.id, None)
        if commits is not None:
            kept = {part: committed_position(commits, part) for part in assignment & before}
            kept = {part: at for part, at in kept.items() if at}
            if kept:
                self.pending_commits[topic.id] = kept

    def _holds_uncommitted(self) -> bool:
        return bool(self.pending_commits) or any(one.holds_uncommitted for one in self._cursors)

    def _take_assignments(self) -> bool:
        """Follow the registry as far as the others let us; False if we may not read just now."""
        self._follow_now()
        if self._letting_go:
            if any(one.holds_uncommitted for one in self._cursors):
                return False  # the reader is at work with it
            try:
                self._bus.flush_now()
            except BusError:
                return False
            self._follow_now()
            if self._letting_go:
                return False
        if self._unreleased and not self._orphaned:
            self._release()
            self._unreleased = False
        awaited = self._awaited
        if awaited is not None and (
            _handed_over(awaited) or self._released_by_others(awaited.version)
        ):
            self._awaited = None
            self.distrust()  # the others have marked what they held: look how far they got
            self._follow_now()
        return True

    def _follow_now(self) -> None:
        registry = self._begin()
        try:
            self.follow(registry)
        finally:
            self._end()

    def _fetch(self, max_records: int) -> list[Record]:
        records = self._fetch_once(max_records)
        if self._orphaned and not self.closed:
            if self.group is not None:
                records = []  # somebody else's by now; what becomes ours again is read again
            self._register()
            self.distrust()
            records += self._fetch_once(max_records - len(records))
        return records

    def _fetch_once(self, max_records: int) -> list[Record]:
        with self._bus.mutex:
            records = [] if self.closed else self._fetch_ours(max_records)
            if self._assignments_changed:
                self._assignments_changed = False
                self._assignments = {
                    (cursor.topic.name, part): cursor.taken.get(part, 0)
                    for cursor in self._cursors
                    for part in cursor.partitions
                }
        return records

    def _fetch_ours(self, max_records: int) -> list[Record]:
        records: list[Record] = []
        if self._loop is None:  # else the loop collects them as they come
            self._collect_wake_ups()
        while True:
            if not self._unchecked and not self._changed():
                if self._read_dirty(max_records, records):
                    return records
                continue
            self._unchecked = False
            if not self._take_assignments():
                self._unchecked = True
                return records

    def _read_dirty(self, max_records: int, records: list[Record]) -> bool:
        """Read what is there, in order; False if our share changed before we were through."""
        for cursor in self._cursors:
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
        # A member with a quiet share must not look through the others' records again and again.
        end = 0 if owned is None else self._end_offset(cursor.topic)
        found = self._select(cursor, limit)
        # Whoever took over some of our share starts with what came after that: not ours to read.
        if self.group is not None and self._changed():
            return None
        if found:
            cursor.position = found[-1].offset
        if len(found) < limit:
            cursor.dirty = False
            cursor.position = max(cursor.position, end)
        return cursor.accept(found)

    def _has_news(self) -> bool:
        return self._unchecked or any(one.dirty or one.arrived for one in self._cursors)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move to the loop that reads now."""
        if self._loop is not None and not self._loop.is_closed():
            self._detach(self._loop)
        self._loop = loop
        self._attach(loop)
        self._safety_check()

    def _safety_check(self) -> None:
        if self.closed or self._loop is None or self._loop.is_closed():
            return
        self._safety_timer = self._loop.call_later(SAFETY_CHECK_S, self._safety_check)
        self._keep_alive()
        self.check_all()
        self.wake()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _handed_over(registry: Registry) -> bool:
    """Whether the time is over in which shares are handed over in order."""
    since_us = time.monotonic_ns() // 1000 - registry.moved_us
    # A time to come is from before the machine was started.
    return not 0 <= since_us < HANDOVER_S * 1e6
