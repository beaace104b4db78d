"""Records fetched from Kafka and not yet read: by topic, in the order topics are served.

Plain values, no client and no thread: the consumer guards it with a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mercury.bus.api import Record
from mercury.bus.grouping import rank_of
from mercury.bus.kafka.cluster import PartitionId

# Of one topic: a backlog in one must not keep the others from being fetched.
FULL_RECORDS = 8192
FULL_BYTES = 16 * 1024**2


@dataclass(slots=True)
class _Track:
    """How far one partition is read."""

    fetched: int  # the next offset to come from the broker
    delivered: int  # the next offset to return
    stamp_us: int = 0
    uncommitted: bool = False
    epoch: int = 0  # assignment epoch it came with


@dataclass(slots=True)
class _TopicQueue:
    """The records of one topic that were not read yet."""

    records: list[Record] = field(default_factory=list)
    size: int = 0
    sorted: bool = True
    full: bool = False


class FetchBuffer:
    """The records a consumer has fetched, and its position in each of its partitions."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = patterns
        self._tracks: dict[PartitionId, _Track] = {}
        self._parked: dict[PartitionId, _Track] = {}  # while the group is rebalanced
        self._queues: dict[str, _TopicQueue] = {}  # in the order of serving
        self._waiting = 0
        self._epoch = 0

    def __len__(self) -> int:
        return self._waiting

    def assignments(self) -> dict[PartitionId, int]:
        """The consumer's partitions, each with the assignment epoch it came with."""
        return {partition_id: track.epoch for partition_id, track in self._tracks.items()}

    def committable(self) -> set[PartitionId]:
        """Partitions whose offsets this consumer may commit."""
        return {*self._tracks, *self._parked}

    @property
    def has_uncommitted(self) -> bool:
        """Whether records returned from parked partitions are not committed yet."""
        return any(track.uncommitted for track in self._parked.values())

    def assign(self, positions: Mapping[PartitionId, int]) -> None:
        """Take partitions, to be fetched from here; parked ones not among them are lost."""
        self._epoch += 1
        for partition_id, offset in positions.items():
            was = self._parked.pop(partition_id, None)
            self._tracks[partition_id] = _Track(
                offset,
                offset,
                uncommitted=was is not None and was.uncommitted,
                epoch=was.epoch if was is not None and was.delivered == offset else self._epoch,
            )
            self._queues.setdefault(partition_id[0], _TopicQueue())
        self._parked.clear()
        self._queues = dict(
            sorted(self._queues.items(), key=lambda one: (rank_of(self._patterns, one[0]), one[0]))
        )

    def park(self, partition_ids: Iterable[PartitionId]) -> None:
        """Stop returning records of partitions that may be reassigned soon.

        Their positions are kept until the new assignment is known.
        """
        partition_ids = list(partition_ids)
        parked = {
            partition_id: self._tracks[partition_id]
            for partition_id in partition_ids
            if partition_id in self._tracks
        }
        self.revoke(partition_ids)
        self._parked.update(parked)

    def parked(self) -> dict[PartitionId, int]:
        """The positions of parked partitions."""
        return {partition_id: track.delivered for partition_id, track in self._parked.items()}

    def revoke(self, partition_ids: Iterable[PartitionId]) -> None:
        """Drop partitions that belong to another member now."""
        gone = set(partition_ids)
        for partition_id in gone:
            self._tracks.pop(partition_id, None)
            self._parked.pop(partition_id, None)
        for topic in {topic for topic, _ in gone}:
            queue = self._queues.get(topic)
            if queue is not None:
                kept = [one for one in queue.records if (one.topic, one.partition) not in gone]
                self._waiting -= len(queue.records) - len(kept)
                queue.records, queue.size = kept, sum(len(one.value) for one in kept)

    def put(self, records: Iterable[Record]) -> None:
        """Add fetched records, if their partition is ours and they are new."""
        for record in records:
            track = self._tracks.get((record.topic, record.partition))
            if track is None or record.offset < track.fetched:
                continue
            track.fetched = record.offset + 1
            # Times grow within a partition, whatever the broker's clock did.
            if record.timestamp_us < track.stamp_us:
                record = record._replace(timestamp_us=track.stamp_us)
            track.stamp_us = record.timestamp_us
            queue = self._queues[record.topic]
            if queue.records and _by_time(record) < _by_time(queue.records[-1]):
                queue.sorted = False
            queue.records.append(record)
            queue.size += len(record.value)
            self._waiting += 1

    def take(self, limit: int) -> list[Record]:
        """Return records: by rank of their topic, then by time."""
        found: list[Record] = []
        for queue in self._queues.values():
            if len(found) >= limit:
                break
            if not queue.records:
                continue
            if not queue.sorted:
                # Of one partition, offsets and times grow together: its order stays.
                queue.records.sort(key=_by_time)
                queue.sorted = True
            some = queue.records[: limit - len(found)]
            del queue.records[: len(some)]
            queue.size -= sum([len(one.value) for one in some])
            found += some
        self._waiting -= len(found)
        for record in found:
            track = self._tracks[record.topic, record.partition]
            track.delivered = record.offset + 1
            track.uncommitted = True
        return found

    def take_commits(self) -> dict[PartitionId, int]:
        """Positions to commit for all records returned since the last call."""
        commits = {}
        for partition_id, track in (*self._tracks.items(), *self._parked.items()):
            if track.uncommitted:
                commits[partition_id] = track.delivered
                track.uncommitted = False
        return commits

    def pause_and_resume(self) -> tuple[list[PartitionId], list[PartitionId]]:
        """Partitions of topics that just became full, and of those that have room again."""
        full: list[PartitionId] = []
        roomy: list[PartitionId] = []
        for topic, queue in self._queues.items():
            fill = max(len(queue.records) / FULL_RECORDS, queue.size / FULL_BYTES)
            if not queue.full and fill >= 1.0:
                queue.full = True
                full += [partition_id for partition_id in self._tracks if partition_id[0] == topic]
            elif queue.full and fill < 0.5:
                queue.full = False
                roomy += [partition_id for partition_id in self._tracks if partition_id[0] == topic]
        return full, roomy

    @property
    def holds_back(self) -> bool:
        """Whether some topic is full."""
        return any(queue.full for queue in self._queues.values())

    def restart(self) -> dict[PartitionId, int]:
        """Where a new client has to fetch from; none of its partitions is paused."""
        for queue in self._queues.values():
            queue.full = False
        return {partition_id: track.fetched for partition_id, track in self._tracks.items()}

    def waiting(self, spans: Mapping[PartitionId, tuple[int, int]]) -> dict[PartitionId, int]:
        """Where records of our partitions were not fetched yet, though there is room."""
        found = {}
        for partition_id, (low, end) in spans.items():
            track = self._tracks.get(partition_id)
            if track is None or self._queues[partition_id[0]].full:
                continue
            if max(track.fetched, low) < end:
                found[partition_id] = track.fetched
        return found

    def lag(self, spans: Mapping[PartitionId, tuple[int, int]]) -> int:
        """How many records of our partitions were not returned yet."""
        total = 0
        for partition_id, (low, end) in spans.items():
            track = self._tracks.get(partition_id)
            if track is not None:
                total += max(0, end - max(track.delivered, low))
        return total


def _by_time(record: Record) -> tuple[int, int, int]:
    return record.timestamp_us, record.partition, record.offset
