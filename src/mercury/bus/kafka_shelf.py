"""Records that were fetched and not yet handed out: by topic, in the order topics are served.

Plain values, no client and no thread: the consumer guards it with a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mercury.bus.api import Record
from mercury.bus.grouping import rank_of
from mercury.bus.kafka_cluster import Place

# Of one topic: a backlog in one must not keep the others from being fetched.
FULL_RECORDS = 8192
FULL_BYTES = 16 * 1024**2


@dataclass(slots=True)
class _Track:
    """How far one partition is read."""

    fetched: int  # the next offset to come from the broker
    delivered: int  # the next offset to hand out; what lies before is done or not wanted
    stamp_us: int = 0
    unmarked: bool = False
    taken: int = 0  # which taking of partitions it came with


@dataclass(slots=True)
class _Pile:
    """What waits of one topic."""

    records: list[Record] = field(default_factory=list)
    size: int = 0
    sorted: bool = True
    full: bool = False


class Shelf:
    """What a consumer has at hand, and its position in every partition of its share."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = patterns
        self._tracks: dict[Place, _Track] = {}
        self._parked: dict[Place, _Track] = {}  # while the group shares out anew
        self._piles: dict[str, _Pile] = {}  # in the order of serving
        self._waiting = 0
        self._takes = 0

    def __len__(self) -> int:
        return self._waiting

    def places(self) -> list[Place]:
        """The consumer's share."""
        return list(self._tracks)

    def shares(self) -> dict[Place, int]:
        """The same, with a number that is another for a partition that was not ours between."""
        return {place: track.taken for place, track in self._tracks.items()}

    def markable(self) -> set[Place]:
        """Partitions of which we may say how far they are done."""
        return {*self._tracks, *self._parked}

    @property
    def in_hand(self) -> bool:
        """Whether something that was handed out of parked partitions is not marked as done."""
        return any(track.unmarked for track in self._parked.values())

    def assign(self, positions: Mapping[Place, int], wanted_from: int = 0) -> None:
        """Take partitions, to be fetched from here; lower offsets than wanted are not kept."""
        self._takes += 1
        for place, offset in positions.items():
            was = self._parked.pop(place, None)
            self._tracks[place] = _Track(
                offset,
                max(offset, wanted_from),
                unmarked=was is not None and was.unmarked,
                taken=was.taken if was is not None and was.delivered == offset else self._takes,
            )
            self._piles.setdefault(place[0], _Pile())
        self._piles = dict(
            sorted(self._piles.items(), key=lambda one: (rank_of(self._patterns, one[0]), one[0]))
        )

    def park(self, places: Iterable[Place]) -> None:
        """Hand out no more of partitions that may be somebody else's soon.

        How far they were handed out is remembered until the new shares are known.
        """
        places = list(places)
        parked = {place: self._tracks[place] for place in places if place in self._tracks}
        self.revoke(places)
        self._parked.update(parked)

    def parked(self) -> dict[Place, int]:
        """How far parked partitions were handed out."""
        return {place: track.delivered for place, track in self._parked.items()}

    def forget_parked(self) -> None:
        """Those that did not come back are somebody else's."""
        self._parked.clear()

    def revoke(self, places: Iterable[Place]) -> None:
        """Forget partitions that are somebody else's now."""
        gone = set(places)
        for place in gone:
            self._tracks.pop(place, None)
            self._parked.pop(place, None)
        for topic in {topic for topic, _ in gone}:
            pile = self._piles.get(topic)
            if pile is not None:
                kept = [one for one in pile.records if (one.topic, one.partition) not in gone]
                self._waiting -= len(pile.records) - len(kept)
                pile.records, pile.size = kept, sum(len(one.value) for one in kept)

    def put(self, records: Iterable[Record]) -> None:
        """Keep what the broker sent, as far as it is ours and new."""
        for record in records:
            track = self._tracks.get((record.topic, record.partition))
            if track is None or record.offset < track.fetched:
                continue
            track.fetched = record.offset + 1
            if record.offset < track.delivered:
                continue
            # Times grow within a partition, whatever the broker's clock did.
            if record.timestamp_us < track.stamp_us:
                record = record._replace(timestamp_us=track.stamp_us)
            track.stamp_us = record.timestamp_us
            pile = self._piles[record.topic]
            if pile.records and _by_time(record) < _by_time(pile.records[-1]):
                pile.sorted = False
            pile.records.append(record)
            pile.size += len(record.value)
            self._waiting += 1

    def take(self, limit: int) -> list[Record]:
        """Hand out records: by rank of their topic, then by time."""
        found: list[Record] = []
        for pile in self._piles.values():
            if len(found) >= limit:
                break
            if not pile.records:
                continue
            if not pile.sorted:
                # Of one partition, offsets and times grow together: its order stays.
                pile.records.sort(key=_by_time)
                pile.sorted = True
            some = pile.records[: limit - len(found)]
            del pile.records[: len(some)]
            pile.size -= sum([len(one.value) for one in some])
            found += some
        self._waiting -= len(found)
        for record in found:
            track = self._tracks[record.topic, record.partition]
            track.delivered = record.offset + 1
            track.unmarked = True
        return found

    def forget_below(self, spans: Mapping[Place, tuple[int, int]]) -> None:
        """Drop what the retention has taken meanwhile."""
        for pile in self._piles.values():
            kept = [
                one
                for one in pile.records
                if one.offset >= spans.get((one.topic, one.partition), (0, 0))[0]
            ]
            if len(kept) < len(pile.records):
                self._waiting -= len(pile.records) - len(kept)
                pile.records, pile.size = kept, sum(len(one.value) for one in kept)

    def take_marks(self) -> dict[Place, int]:
        """Positions to commit for everything handed out since the last call."""
        marks = {}
        for place, track in (*self._tracks.items(), *self._parked.items()):
            if track.unmarked:
                marks[place] = track.delivered
                track.unmarked = False
        return marks

    def turned(self) -> tuple[list[Place], list[Place]]:
        """Partitions of topics that just became full, and of those that have room again."""
        full: list[Place] = []
        roomy: list[Place] = []
        for topic, pile in self._piles.items():
            fill = max(len(pile.records) / FULL_RECORDS, pile.size / FULL_BYTES)
            if not pile.full and fill >= 1.0:
                pile.full = True
                full += [place for place in self._tracks if place[0] == topic]
            elif pile.full and fill < 0.5:
                pile.full = False
                roomy += [place for place in self._tracks if place[0] == topic]
        return full, roomy

    @property
    def holds_back(self) -> bool:
        """Whether some topic is full."""
        return any(pile.full for pile in self._piles.values())

    def behind(self, spans: Mapping[Place, tuple[int, int]]) -> bool:
        """Whether something that stands in our share was not fetched yet, though there is room."""
        for place, (low, end) in spans.items():
            track = self._tracks.get(place)
            if track is None or self._piles[place[0]].full:
                continue
            if max(track.fetched, low) < end:
                return True
        return False

    def lag(self, spans: Mapping[Place, tuple[int, int]]) -> int:
        """How many records of our share were not handed out yet."""
        total = 0
        for place, (low, end) in spans.items():
            track = self._tracks.get(place)
            if track is not None:
                total += max(0, end - max(track.delivered, low))
        return total


def _by_time(record: Record) -> tuple[int, int, int]:
    return record.timestamp_us, record.partition, record.offset
