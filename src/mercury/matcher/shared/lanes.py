"""The second stage: the lanes whose records come by one partition of `tiles`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np

from mercury.bus import Record
from mercury.matcher.shared.lane import Arrival, Incoming, Lane
from mercury.matcher.shared.routing import lane_key
from mercury.matcher.shared.sighting_frames import SightingFrames
from mercury.matcher.shared.stage import (
    Parcel,
    StageNumber,
    State,
    pack_pieces,
    pack_state,
    unpack_pieces,
)
from mercury.matching import MatchingRules
from mercury.model import topics
from mercury.model.errors import PacketError
from mercury.wire.match_frames import split_frame
from mercury.wire.origins import Origin, SeenOrigins, origin_header, read_origin
from mercury.wire.worker_frames import (
    SEEDS,
    STEPS,
    Steps,
    joined_rows,
    read_steps,
    read_time,
    steps_frame,
)


class Lanes:
    """Lanes by their number, and what came to them already."""

    def __init__(self, partition: int, rules: MatchingRules) -> None:
        self.partition = partition
        self.rules = rules
        self.lanes: dict[bytes, Lane] = {}
        self._dropped: Counter[str] = Counter()
        self.sightings = 0
        self._seen = SeenOrigins()

    def process(self, records: Sequence[Record]) -> list[Parcel]:
        """Take in records; what was seen, and who goes on to other lanes."""
        out = SightingFrames()
        gathered: dict[bytes, list[Incoming]] = {}  # one lane's at once: that is much faster
        for record in records:
            try:
                segments = split_frame(record.value)
                steps = read_steps(segments)
                times = [read_time(data) for letter, data in segments if letter == b"T"]
            except PacketError as error:
                self._dropped[error.reason] += 1
                continue
            if steps is not None and (new := self._new(record, steps)) is not None:
                incoming = Incoming(new, record.offset, record.timestamp_us)
                gathered.setdefault(record.key, []).append(incoming)
            for time_us in times:
                self._take(gathered, out)
                for lane in self.lanes.values():
                    lane.pass_time(time_us, record.offset, out)
        self._take(gathered, out)
        self.sightings += out.count
        parcels = out.parcels(topics.SIGHTINGS, StageNumber.LANES, self.partition)
        return parcels + self._passed_on()

    def statistics(self) -> dict[str, float]:
        numbers = [lane.engine.statistics() for lane in self.lanes.values()]
        return {
            "sightings": self.sightings,
            "publications_matched": sum(one["publications"] for one in numbers),
            "pairs_matched": sum(one["pairs"] for one in numbers),
        }

    @property
    def dropped(self) -> Counter[str]:
        """What was dropped and why."""
        return sum((lane.dropped for lane in self.lanes.values()), self._dropped)

    def _new(self, record: Record, steps: Steps) -> Steps | None:
        """The steps that were not taken before."""
        origin = read_origin(record.headers)
        if origin is None:
            self._dropped["malformed"] += 1
            return None
        last = self._seen.last(origin, record.key)
        if origin.offset <= last:
            return None  # work that was done again
        self._seen.note(origin, record.key)
        return steps.after(last)

    def _take(self, gathered: dict[bytes, list[Incoming]], out: SightingFrames) -> None:
        for key, incoming in gathered.items():
            lane = self.lanes.get(key)
            if lane is None:
                lane = self.lanes[key] = Lane(self.rules)
            lane.take(incoming, out)
        gathered.clear()

    def _passed_on(self) -> list[Parcel]:
        by_lane: dict[int, list[Arrival]] = {}
        for lane in self.lanes.values():
            for arrival in lane.arrivals:
                by_lane.setdefault(arrival.lane, []).append(arrival)
            lane.arrivals = []
        parcels = []
        for number in sorted(by_lane):
            # By what they follow from, as a cut between batches would have it.
            arrivals = sorted(by_lane[number], key=lambda one: int(one.row["origin"][0]))
            rows = joined_rows([one.row for one in arrivals], STEPS)
            seeds = [(row, 0, *seed) for row, one in enumerate(arrivals) for seed in one.seeds]
            frame = steps_frame(rows, [one.declaration for one in arrivals], np.array(seeds, SEEDS))
            last = Origin(StageNumber.LANES, self.partition, int(rows["origin"][-1]))
            parcels.append(Parcel(topics.TILES, lane_key(number), frame, (origin_header(last),)))
        return parcels

    # State

    def snapshot(self) -> bytes:
        seen = [(*place[:2], place[2].hex(), place[3]) for place in self._seen.entries()]
        facts = {
            "lanes": [key.hex() for key in self.lanes],
            "seen": seen,
            "sightings": self.sightings,
        }
        states = [lane.snapshot() for lane in self.lanes.values()]
        return pack_state(facts, lanes=pack_pieces(states))

    def restore(self, data: bytes) -> Self:
        """Go on from a snapshot."""
        state = State(data)
        facts = state.facts
        pieces = unpack_pieces(state.blob("lanes"))
        self.lanes = {
            bytes.fromhex(key): Lane.restore(piece, self.rules)
            for key, piece in zip(facts["lanes"], pieces, strict=True)
        }
        self._seen = SeenOrigins(
            (stage, partition, bytes.fromhex(key), offset)
            for stage, partition, key, offset in facts["seen"]
        )
        self.sightings = state.number("sightings")
        return self
