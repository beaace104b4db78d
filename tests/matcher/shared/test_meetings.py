"""The last stage: whatever the order in which lanes are heard, each pair is told of rightly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.frames import Happened, read_frame

from mercury.bus import Record
from mercury.matcher.shared.meetings import Meetings
from mercury.matcher.shared.sighting_frames import SightingFrames
from mercury.matcher.shared.stage import Parcel, StageNumber
from mercury.model.matching import EventReason, EventType
from mercury.wire.worker_frames import NO_DWELL, SIGHTINGS, time_frame

ENTER, INSIDE, EXIT, DWELL = EventType.ENTER, EventType.INSIDE, EventType.EXIT, EventType.DWELL
PUBLICATION = 77
SECOND = 1_000_000


def sighting(
    event_type: EventType,
    stay: int,
    time_us: int,
    origin: int,
    subscription: int = 5,
    dwell_ms: int = NO_DWELL,
) -> np.ndarray:
    row = np.zeros(1, SIGHTINGS)
    row["origin"], row["stay"], row["time_us"] = origin, stay, time_us
    row["subscription"], row["publication"] = subscription, PUBLICATION
    row["event_type"], row["reason"], row["dwell_ms"] = event_type, EventReason.MOVED, dwell_ms
    return row


def frames(lane: int, rows: list[np.ndarray]) -> list[Parcel]:
    """What a lane's partition appends for some rows, in one go."""
    out = SightingFrames()
    for row in rows:
        out.add(row)
    return out.parcels("sightings", StageNumber.LANES, lane)


class Reader:
    """Feeds a stage record by record, and keeps what it tells."""

    def __init__(self) -> None:
        self.stage = Meetings(0)
        self.told: list[tuple[EventType, int, int]] = []
        self.offset = 0

    def take(self, *parcels: Parcel) -> None:
        for parcel in parcels:
            self.offset += 1
            record = Record(
                "sightings", 0, self.offset, 1, parcel.key, parcel.headers, parcel.value
            )
            for told in self.stage.process([record]):
                for segment in read_frame(told.value):
                    if isinstance(segment, Happened):
                        self.told += [
                            (
                                EventType(int(row["event_type"])),
                                int(row["subscription"]),
                                int(row["time_us"]),
                            )
                            for row in segment.rows
                        ]


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[EventType, int]]]:
    """What lanes see of one pair, a list for each stay; who was inside when it went on stays so."""
    inside, time_us = False, 0
    found = []
    for _ in range(draw(st.integers(1, 5))):
        stay: list[tuple[EventType, int]] = []
        for _ in range(draw(st.integers(0, 4))):
            time_us += SECOND
            event_type = draw(st.sampled_from([INSIDE, EXIT])) if inside else ENTER
            inside = event_type != EXIT
            stay.append((event_type, time_us))
        found.append(stay)
    return found


@given(histories(), st.data())
def test_alternating_and_right_in_the_end_whatever_comes_when(
    history: list[list[tuple[EventType, int]]], data: st.DataObject
) -> None:
    # Lanes alternate between two partitions, each of which keeps its order.
    queues: dict[int, list[Parcel]] = {0: [], 1: []}
    origins = {0: 0, 1: 0}
    for number, stay in enumerate(history):
        for event_type, time_us in stay:
            lane = number % 2
            origins[lane] += 1
            queues[lane] += frames(lane, [sighting(event_type, number, time_us, origins[lane])])
    reader = Reader()
    sent: list[Parcel] = []
    while any(queues.values()):
        lane = data.draw(st.sampled_from([one for one in queues if queues[one]]))
        parcel = queues[lane].pop(0)
        sent.append(parcel)
        reader.take(parcel)
        if data.draw(st.booleans()):
            reader.take(data.draw(st.sampled_from(sent)))  # done again by who took over
    inside = False
    for event_type, _, _ in reader.told:
        assert inside == (event_type != ENTER)
        inside = event_type != EXIT
    everything = [one for stay in history for one in stay]
    assert inside == bool(everything and everything[-1][0] != EXIT)


@given(histories(), st.lists(st.integers(1, 3)), st.integers(0, 20))
def test_in_order_everything_is_told_once_however_work_is_cut(
    history: list[list[tuple[EventType, int]]], cuts: list[int], again_from: int
) -> None:
    """A batch that is done again may be cut otherwise: rows that were seen are left out."""
    rows = [
        sighting(event_type, number, time_us, origin)
        for origin, (number, event_type, time_us) in enumerate(
            [(number, *one) for number, stay in enumerate(history) for one in stay]
        )
    ]
    reader = Reader()
    done = 0
    for cut in cuts:
        reader.take(*frames(3, rows[done : done + cut]))
        done = min(done + cut, len(rows))
    reader.take(*frames(3, rows[min(again_from, done) :]))
    expected = [(event_type, 5, time_us) for stay in history for event_type, time_us in stay]
    assert reader.told == expected


def test_dwell_lasts_over_the_border_of_lanes() -> None:
    reader = Reader()
    reader.take(*frames(0, [sighting(ENTER, 1, 10 * SECOND, 1, dwell_ms=3000)]))
    reader.take(*frames(1, [sighting(ENTER, 2, 12 * SECOND, 1, dwell_ms=3000)]))  # again
    reader.take(Parcel("sightings", b"00", time_frame(12 * SECOND + 999_999)))
    assert [told[0] for told in reader.told] == [ENTER]
    reader.take(Parcel("sightings", b"00", time_frame(13 * SECOND)))
    reader.take(Parcel("sightings", b"00", time_frame(14 * SECOND)))
    assert reader.told[1:] == [(DWELL, 5, 13 * SECOND)]


@pytest.mark.parametrize(("exit_s", "told"), [(12, [ENTER, EXIT]), (13, [ENTER, DWELL, EXIT])])
def test_who_leaves_after_it_has_dwelt_has_dwelt(exit_s: int, told: list[EventType]) -> None:
    reader = Reader()
    reader.take(*frames(0, [sighting(ENTER, 1, 10 * SECOND, 1, dwell_ms=3000)]))
    reader.take(*frames(0, [sighting(EXIT, 1, exit_s * SECOND, 2)]))
    reader.take(Parcel("sightings", b"00", time_frame(20 * SECOND)))
    assert [one[0] for one in reader.told] == told


def test_state_comes_back_and_old_pairs_are_forgotten() -> None:
    reader = Reader()
    first = frames(0, [sighting(ENTER, 1, 10 * SECOND, 1, subscription=5, dwell_ms=3000)])
    reader.take(*first)
    reader.take(*frames(0, [sighting(ENTER, 1, 10 * SECOND, 2, subscription=6)]))
    reader.take(*frames(0, [sighting(EXIT, 1, 11 * SECOND, 3, subscription=6)]))
    data = reader.stage.snapshot()
    other = Meetings(0).restore(data)
    assert other.snapshot() == data
    reader.stage = other
    reader.take(*first)  # seen before
    reader.take(Parcel("sightings", b"00", time_frame(14 * SECOND)))
    assert reader.told[3:] == [(DWELL, 5, 13 * SECOND)]
    assert len(other.pairs) == 2
    reader.take(Parcel("sightings", b"00", time_frame(100 * SECOND)))
    assert list(other.pairs) == [(5, PUBLICATION)]


def test_damaged_records_are_counted_and_left() -> None:
    reader = Reader()
    reader.take(Parcel("sightings", b"00", b"\x01G\x05\x00\x00\x00short"))
    reader.take(*frames(0, [sighting(ENTER, 1, 10 * SECOND, 1)]))
    assert reader.stage.dropped == {"truncated": 1}
    assert len(reader.told) == 1
