"""Which partitions a consumer reads and how far: follows topics and members as they come and go.

Decides only: the registry, the committed offsets and the time are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mercury.bus.api import Record
from mercury.bus.grouping import Registry, Topic

# When members come and go: how long who loses partitions may take to commit what it holds of them.
HANDOVER_S = 2.0
# Offsets are counted per topic, so one number can stand for all partitions of it.
ALL_PARTITIONS = -1


Commits = dict[int, dict[int, int]]  # topic id -> partition -> offset


@dataclass(slots=True, eq=False)
class TopicCursor:
    """How far one consumer has read one topic."""

    topic: Topic
    owned: frozenset[int] | None = None  # None: every partition
    position: int = 0  # everything owned up to this offset was looked at
    epoch_of: dict[int, int] = field(default_factory=dict)  # assignment epoch of each partition
    ahead: dict[int, int] = field(default_factory=dict)  # partitions that begin beyond `position`
    # Of each partition the last offset, since the last commit.
    delivered: dict[int, int] = field(default_factory=dict)
    committed: int = 0
    dirty: bool = True  # something may be there to read
    # Came by itself, follows `position` without a gap.
    arrived: list[Record] = field(default_factory=list)

    @property
    def partitions(self) -> frozenset[int]:
        """What we read of the topic."""
        return frozenset(range(self.topic.partitions)) if self.owned is None else self.owned

    @property
    def has_uncommitted(self) -> bool:
        """Whether something was delivered since the last commit."""
        return bool(self.delivered) or (self.owned is None and self.position != self.committed)

    def can_take(self, first: int) -> bool:
        """Whether records from this offset on continue what is there."""
        return first == (self.arrived[-1].offset if self.arrived else self.position) + 1

    def deliver(self, limit: int) -> list[Record]:
        """Hand out what arrived, as if it had been read."""
        found, self.arrived = self.arrived[:limit], self.arrived[limit:]
        self.position = found[-1].offset
        if self.owned is not None:
            found = [one for one in found if one.partition in self.owned]
        return self.accept(found)

    def invalidate_arrived(self) -> None:
        """Read instead what arrived: it may not be ours any more."""
        if self.arrived:
            self.arrived = []
            self.dirty = True

    def position_in(self, partition: int) -> int:
        return max(self.position, self.ahead.get(partition, 0))

    def place(self, positions: Mapping[int, int]) -> None:
        """Go on at the given position in each owned partition."""
        self.position = min(positions.values(), default=self.position)
        self.ahead = {part: at for part, at in positions.items() if at > self.position}
        self.committed = self.position
        self.delivered = {}
        self.owned = None if len(positions) == self.topic.partitions else frozenset(positions)
        self.dirty = True

    def accept(self, found: list[Record]) -> list[Record]:
        """Drop what lies before the position of its partition."""
        if self.ahead:
            ahead = self.ahead
            found = [one for one in found if one.offset > ahead.get(one.partition, 0)]
            self.ahead = {part: at for part, at in ahead.items() if at > self.position}
        if self.owned is not None:
            for one in found:
                self.delivered[one.partition] = one.offset
        return found

    def take_commits(self) -> dict[int, int]:
        """Positions to commit for everything delivered since the last call."""
        commits, self.delivered = self.delivered, {}
        if self.owned is None and self.position != self.committed:
            commits[ALL_PARTITIONS] = self.committed = self.position
        return commits

    def uncommitted(self, assignment: frozenset[int]) -> dict[int, int]:
        """Positions that were delivered but not yet committed, of some partitions."""
        if self.owned is None and self.position != self.committed:
            return {part: self.position_in(part) for part in assignment}
        return {part: at for part, at in self.delivered.items() if part in assignment}


class Assignment:
    """The topics and partitions of one consumer, alone or as a member of a group."""

    def __init__(self, consumer_id: str, patterns: tuple[str, ...], group: str | None) -> None:
        self.version = -1  # of the registry that is followed
        self.cursors: list[TopicCursor] = []  # in the order they are served
        self.cursor_of: dict[int, TopicCursor] = {}
        self.pending_commits: Commits = {}
        self.orphaned = False  # others took us for dead; register again
        self.changed = True  # since the last `epochs`
        self.handing_over = False  # members changed, and what we hold is not committed yet
        self.unreleased = False  # it is, and the others do not know
        self.awaited: Registry | None = None  # whose new partitions others may not have released
        self._id = consumer_id
        self._patterns = patterns
        self._group = group
        self._registry: Registry | None = None  # what the cursors belong to
        self._members: frozenset[str] = frozenset()  # of our group, in that
        self._epoch = 0  # counts how often partitions became ours

    def epochs(self) -> dict[tuple[str, int], int]:
        """The partitions, each with the assignment epoch it came with."""
        self.changed = False
        return {
            (cursor.topic.name, part): cursor.epoch_of.get(part, 0)
            for cursor in self.cursors
            for part in cursor.partitions
        }

    def invalidate(self) -> None:
        """Look at the registry again: the last one seen may have been undone."""
        self._registry, self.version = None, -1

    @property
    def has_uncommitted(self) -> bool:
        """Whether something was delivered that nobody asked to commit yet."""
        return any(one.has_uncommitted for one in self.cursors)

    def collect_commits(self) -> bool:
        """Ask to commit what was delivered; return whether there is something to commit."""
        for cursor in self.cursors:
            commits = cursor.take_commits()
            if commits:
                self.pending_commits.setdefault(cursor.topic.id, {}).update(commits)
        return bool(self.pending_commits)

    def pending_up_to(self, limit: Commits | None) -> list[tuple[int, int, int]]:
        """Topic, partition and offset of what is to be committed, no further than a limit."""
        found = []
        for topic_id, commits in self.pending_commits.items():
            for part, offset in commits.items():
                if limit is not None:
                    offset = min(offset, committed_position(limit.get(topic_id, {}), part))
                if offset:
                    found.append((topic_id, part, offset))
        return found

    def drop_pending(self, limit: Commits | None) -> None:
        """Forget what was committed up to a limit."""
        for topic_id, part, offset in self.pending_up_to(limit):
            commits = self.pending_commits[topic_id]
            if commits[part] == offset:
                del commits[part]
            if not commits:
                del self.pending_commits[topic_id]

    def follow(
        self, registry: Registry, now_us: int, committed: Callable[[Topic], Mapping[int, int]]
    ) -> None:
        """Take in new topics and the partitions of each that are ours now.

        When members came or went, what we hold is committed first; then we release what is not
        ours any more, and wait with what is newly ours until the others have released it, too.
        Nobody waits longer than HANDOVER_S: commits for partitions that are no longer ours are
        dropped then. Whoever owns them reads from what was committed before, and only the owner
        may move that.
        """
        if registry is self._registry:
            self.handing_over = False
            return
        self.orphaned = registry.listener(self._id) is None
        if self._group is not None and not self.orphaned:
            members = frozenset(one.id for one in registry.members(self._group))
            if members != self._members:
                uncommitted = bool(self.pending_commits) or self.has_uncommitted
                if uncommitted and not handover_is_over(registry, now_us):
                    self.handing_over = True
                    return
                self._members = members
                self.unreleased = True
                self.awaited = registry if len(members) > 1 else None
        self.handing_over = False
        self.changed = True
        self._registry, self.version = registry, registry.version
        for known in self.cursors:
            known.invalidate_arrived()
        if self.orphaned and self._group is not None:
            self.pending_commits.clear()
            self.cursors, self.cursor_of = [], {}
            self._members, self.awaited = frozenset(), None
            return
        cursors: list[TopicCursor] = []
        for topic in registry.matching(self._patterns):
            cursor = self.cursor_of.get(topic.id)
            if cursor is None:
                cursor = TopicCursor(topic, None if self._group is None else frozenset())
            if self._group is not None:
                partitions = registry.assignment(self._id, self._group, topic)
                if self.awaited is not None:
                    partitions &= cursor.partitions
                if partitions != cursor.partitions:
                    self._reassign(cursor, partitions, committed(topic))
            cursors.append(cursor)
        self.cursors = cursors
        self.cursor_of = {cursor.topic.id: cursor for cursor in cursors}

    def _reassign(
        self, cursor: TopicCursor, partitions: frozenset[int], committed: Mapping[int, int]
    ) -> None:
        before = cursor.partitions
        uncommitted = cursor.uncommitted(partitions & before)
        positions, epoch_of = {}, {}
        self._epoch += 1
        for part in partitions:
            at = committed_position(committed, part)
            # A partition that stayed ours goes on where we are: what we hold is in good hands.
            positions[part] = max(at, cursor.position_in(part)) if part in before else at
            stayed = part in before and at <= cursor.position_in(part)
            epoch_of[part] = cursor.epoch_of.get(part, self._epoch) if stayed else self._epoch
        cursor.place(positions)
        cursor.epoch_of = epoch_of
        cursor.delivered = uncommitted
        commits = self.pending_commits.pop(cursor.topic.id, None)
        if commits is not None:
            kept = {part: committed_position(commits, part) for part in partitions & before}
            kept = {part: at for part, at in kept.items() if at}
            if kept:
                self.pending_commits[cursor.topic.id] = kept


def handover_is_over(registry: Registry, now_us: int) -> bool:
    """Whether members have had their time to commit what they hold, by the uptime clock."""
    # A time to come is from before the machine was started.
    return not 0 <= now_us - registry.moved_us < HANDOVER_S * 1e6


def committed_position(committed: Mapping[int, int], partition: int) -> int:
    """Where a group stands in a partition; a topic younger than the group starts at 0."""
    return max(committed.get(ALL_PARTITIONS, 0), committed.get(partition, 0))
