"""Positions: how far a consumer has read a topic, and what it may commit."""

from __future__ import annotations

from collections.abc import Mapping

from mercury.bus.api import Record
from mercury.bus.grouping import Topic

# Offsets are counted per topic, so one number can stand for all partitions of it.
ALL_PARTITIONS = -1


class TopicCursor:
    """How far one consumer has read one topic."""

    __slots__ = (
        "ahead",
        "arrived",
        "committed",
        "delivered",
        "dirty",
        "epoch_of",
        "owned",
        "position",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.position = 0  # everything owned up to this offset was looked at
        self.owned: frozenset[int] | None = None  # None: every partition
        self.epoch_of: dict[int, int] = {}  # partition -> assignment epoch it came with
        self.ahead: dict[int, int] = {}  # partitions that begin beyond `position`
        self.delivered: dict[int, int] = {}  # partition -> last offset, since the last commit
        self.committed = 0
        self.dirty = True  # something may be there to read
        self.arrived: list[Record] = []  # came by itself, follows `position` without a gap

    @property
    def partitions(self) -> frozenset[int]:
        """What we read of the topic."""
        return frozenset(range(self.topic.partitions)) if self.owned is None else self.owned

    @property
    def holds_uncommitted(self) -> bool:
        """Whether something was delivered since the last commit."""
        return bool(self.delivered) or (self.owned is None and self.position != self.committed)

    def can_take(self, first: int) -> bool:
        """Whether records from this offset on continue what is there."""
        return first == (self.arrived[-1].offset if self.arrived else self.position) + 1

    def take(self, records: list[Record]) -> None:
        """Keep records that arrived without having been read."""
        self.arrived += records

    def deliver(self, limit: int) -> list[Record]:
        """Hand out what arrived, as if it had been read."""
        found, self.arrived = self.arrived[:limit], self.arrived[limit:]
        self.position = found[-1].offset
        if self.owned is not None:
            found = [one for one in found if one.partition in self.owned]
        return self.accept(found)

    def distrust_arrived(self) -> None:
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


def committed_position(committed: Mapping[int, int], partition: int) -> int:
    """Where a group stands in a partition; a topic younger than the group starts at 0."""
    return max(committed.get(ALL_PARTITIONS, 0), committed.get(partition, 0))
