"""Which partitions a consumer reads and how far: follows topics and members as they come and go.

Decides only: the registry, the committed offsets and the time are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mercury.bus.embedded.cursor import TopicCursor, committed_position
from mercury.bus.grouping import Registry, Topic, rank_of

# When members come and go: how long who loses partitions may take to commit what it holds of them.
HANDOVER_S = 2.0


class Assignment:
    """The topics and partitions of one consumer, alone or as a member of a group."""

    def __init__(self, consumer_id: str, patterns: tuple[str, ...], group: str | None) -> None:
        self.version = -1  # of the registry that is followed
        self.cursors: list[TopicCursor] = []  # in the order they are served
        self.cursor_of: dict[int, TopicCursor] = {}
        self.pending_commits: dict[int, dict[int, int]] = {}  # topic id -> partition -> offset
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

    def distrust(self) -> None:
        """Look at the registry again: the last one seen may have been undone."""
        self._registry, self.version = None, -1

    @property
    def in_hand(self) -> bool:
        """Whether something was delivered that nobody asked to commit yet."""
        return any(one.holds_uncommitted for one in self.cursors)

    def collect_commits(self) -> bool:
        """Ask to commit what was delivered; return whether there is something to commit."""
        for cursor in self.cursors:
            commits = cursor.take_commits()
            if commits:
                self.pending_commits.setdefault(cursor.topic.id, {}).update(commits)
        return bool(self.pending_commits)

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
                uncommitted = bool(self.pending_commits) or self.in_hand
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
            known.distrust_arrived()
        if self.orphaned and self._group is not None:
            self.pending_commits.clear()
            self.cursors, self.cursor_of = [], {}
            self._members, self.awaited = frozenset(), None
            return
        ranked: list[tuple[int, int, TopicCursor]] = []
        for topic in registry.topics:
            rank = rank_of(self._patterns, topic.name)
            if rank is None:
                continue
            cursor = self.cursor_of.get(topic.id)
            if cursor is None:
                cursor = TopicCursor(topic)
                if self._group is not None:
                    cursor.owned = frozenset()
            if self._group is not None:
                partitions = registry.assignment(self._id, self._group, topic)
                if self.awaited is not None:
                    partitions &= cursor.partitions
                if partitions != cursor.partitions:
                    self._reassign(cursor, partitions, committed(topic))
            ranked.append((rank, topic.id, cursor))
        ranked.sort(key=lambda entry: entry[:2])
        self.cursors = [cursor for _, _, cursor in ranked]
        self.cursor_of = {cursor.topic.id: cursor for cursor in self.cursors}

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
