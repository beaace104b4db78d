"""The records of one topic: appended to files, read and found again, let go.

A frame of records is written first; then the new end is published in the topic's page, and only
then can anybody read it. Whoever dies between the two has appended nothing, and the next writer
overwrites what it left. Both are in the kernel's hands at once, so that a dead process loses
nothing. What the kernel had not yet brought to the disk when the machine itself stopped is found
by the frames' check sums when the topic is first opened afterwards.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from mercury.bus.api import Record
from mercury.bus.embedded.log_files import INDEX_EVERY_BYTES, Frame, LogFiles
from mercury.bus.embedded.log_page import LogPage, LogState
from mercury.bus.embedded.record_columns import RecordColumns, columns_of
from mercury.bus.embedded.record_frame import (
    HEADER_BYTES,
    Entry,
    is_whole,
    pack_frame,
    read_header,
    records_of,
    sizes_of,
)
from mercury.model.errors import BusCorruptError

SEGMENT_BYTES = 64 * 1024**2
PAGE = "head"
_NOWHERE = (-1, -1, -1)


class TopicLog:
    """One process's hold on a topic's records."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.folder = folder
        self.topic = topic
        self._page = LogPage(folder / PAGE)
        self._files = LogFiles(folder)
        # Where the last reading stopped: offset, and segment and byte where its frame begins.
        self._resume = _NOWHERE
        self.state = self._page.state

    @staticmethod
    def create(folder: Path) -> None:
        """Make an empty topic; what an abandoned one left there is removed."""
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        LogFiles(folder).path(1).touch()
        LogPage.create(folder / PAGE, LogState(oldest=1, next=1, segment=1, size=0, last_us=0))

    def close(self) -> None:
        self._files.close()
        self._page.close()

    # Writing: the caller holds the topic's lock.

    def append(
        self, entries: Sequence[Entry], now_us: int, partitions: int, spread: Iterator[int]
    ) -> bytes:
        """Append records; return the frame they became."""
        state = self.state()
        if state.size >= SEGMENT_BYTES:
            state = self._roll(state)
        now_us = max(now_us, state.last_us)  # time never goes back in a topic
        frame = pack_frame(state.next, now_us, entries, partitions, spread)
        size = state.size + len(frame)
        self._files.write(state.segment, state.size, frame)
        if state.size // INDEX_EVERY_BYTES != size // INDEX_EVERY_BYTES:
            self._files.note(state.segment, state.next, state.size, now_us)
        self._page.publish_end(
            LogState(state.oldest, state.next + len(entries), state.segment, size, now_us)
        )
        return frame

    def _roll(self, state: LogState) -> LogState:
        rolled = state._replace(segment=state.next, size=0)
        self._files.descriptor(rolled.segment, create=True)
        self._page.publish_end(rolled)
        return rolled

    def remove(self, before: int) -> int:
        """Let go of the records before an offset; return how many these were."""
        state = self.state()
        before = min(before, state.next)
        removed = before - state.oldest
        if removed <= 0:
            return 0
        if before == state.next and state.size:
            state = self._roll(state)
        self._page.publish_end(state._replace(oldest=before))
        segments = self._files.segments()
        for segment, following in pairwise(segments):
            if following <= before:
                self._files.remove(segment)
        return removed

    def sync(self) -> None:
        """Bring finished files to the disk, so that they need not be checked when it counts."""
        newest = self.state().segment
        for segment in self._files.segments(newest):
            if self._page.synced <= segment < newest:
                with self._files.path(segment).open("rb") as file:
                    os.fdatasync(file.fileno())
        self._page.synced = newest

    def recover(self) -> None:
        """Once after each start of the machine: keep what reached the disk whole."""
        if self._page.is_of_this_boot:
            return
        segments = self._files.segments()
        if not segments:
            raise BusCorruptError(f"the bus file {self.folder} has lost its records")
        try:
            state = self.state()
        except BusCorruptError:
            state = LogState(segments[0], segments[0], segments[0], 0, 0)
        for segment in [one for one in segments if one >= self._page.synced] or segments[-1:]:
            state = self._good_part(state._replace(segment=segment, next=segment, size=0))
            self._files.index_path(segment).unlink(missing_ok=True)  # may have holes, too
            if state.next not in segments:
                break
        for segment in segments:
            if segment > state.segment:
                self._files.remove(segment)
        os.truncate(self._files.path(state.segment), state.size)
        oldest = min(max(state.oldest, segments[0]), state.next)
        self._page.publish_end(state._replace(oldest=oldest))
        self._page.trust()

    def _good_part(self, state: LogState) -> LogState:
        data = self._files.path(state.segment).read_bytes()
        while state.size + HEADER_BYTES <= len(data):
            header = read_header(data, state.size)
            if header.first != state.next or not is_whole(data, state.size, header):
                break
            state = state._replace(
                size=state.size + header.size,
                next=header.end,
                last_us=max(state.last_us, header.timestamp_us),
            )
        return state

    # Reading.

    def read(self, after: int, limit: int, owned: frozenset[int] | None = None) -> list[Record]:
        """Up to `limit` records after an offset, of some partitions or of all."""
        records: list[Record] = []
        first = max(after + 1, self.state().oldest)
        for frame in self._frames_from(first):
            found = records_of(self.topic, frame.data, frame.begin)
            header = frame.header
            if header.first < first:
                found = found[first - header.first :]
            if owned is not None:
                found = [one for one in found if one.partition in owned]
            records += found
            if len(records) > limit:
                del records[limit:]
                self._resume = records[-1].offset + 1, frame.segment, frame.at
                break
            self._resume = header.end, frame.segment, frame.at + header.size
            if len(records) == limit:
                break
        return records

    def columns(self, begin: int, end: int) -> Iterator[RecordColumns]:
        """The records from one offset up to another, as columns of many at a time."""
        gathered: list[Frame] = []
        for frame in self._frames_from(max(begin, self.state().oldest)):
            if gathered and gathered[0].data is not frame.data:
                yield _between(columns_of(gathered), begin, end)
                gathered = []
            if frame.header.first >= end:
                break
            gathered.append(frame)
            self._resume = frame.header.end, frame.segment, frame.at + frame.header.size
        if gathered:
            yield _between(columns_of(gathered), begin, end)

    def _frames_from(self, first: int) -> Iterator[Frame]:
        for _ in range(3):
            state = self.state()
            first = max(first, state.oldest)
            if first >= state.next:
                return
            try:
                offset, segment, at = self._resume
                if offset != first:
                    frame = self._find(first, state)
                    segment, at = frame.segment, frame.at
                for frame in self._files.frames(segment, at, state):
                    first = frame.header.end
                    yield frame
                return
            except FileNotFoundError:  # retention has removed it meanwhile
                self._files.forget()
                self._resume = _NOWHERE
        raise BusCorruptError(f"the bus file {self.folder} has lost its records from {first} on")

    def _find(self, offset: int, state: LogState) -> Frame:
        """The frame that holds an offset."""
        segments = self._files.segments(state.segment)
        index = bisect_right(segments, offset) - 1
        if index < 0:
            raise FileNotFoundError(self.folder)
        segment = segments[index]
        at = self._files.noted(segment, state, "offset", offset + 1)
        for frame in self._files.frames(segment, at, state):
            if frame.header.end > offset:
                return frame
        raise self._files.damaged(segment, at)

    def offset_at(self, time_us: int) -> int:
        """The first offset at or after a time."""
        state = self.state()
        if state.last_us < time_us:
            return state.next
        segments = self._files.segments(state.segment)
        # The last that begins before that time.
        segment = segments[max(0, bisect_left(segments, time_us, key=self._files.first_us) - 1)]
        at = self._files.noted(segment, state, "time_us", time_us)
        for frame in self._files.frames(segment, at, state):
            if frame.header.timestamp_us >= time_us:
                return max(frame.header.first, state.oldest)
        return state.next

    # What is kept, for retention.

    def oldest_us(self) -> int | None:
        """Time of the oldest record; None if there is none."""
        state = self.state()
        if state.oldest == state.next:
            return None
        return self._find(state.oldest, state).header.timestamp_us

    def kept_bytes(self) -> int:
        """How much the records take that are kept."""
        state = self.state()
        if state.oldest == state.next:
            return 0
        segment, begin = self._begin(state)
        kept = [one for one in self._files.segments(state.segment) if one >= segment]
        return sum(self._files.size(one, state) for one in kept) - begin

    def _begin(self, state: LogState) -> tuple[int, int]:
        """Segment and byte where the oldest record begins."""
        frame = self._find(state.oldest, state)
        gone = state.oldest - frame.header.first
        if not gone:
            return frame.segment, frame.at
        return frame.segment, frame.at + HEADER_BYTES + sum(
            sizes_of(frame.data, frame.begin)[:gone]
        )

    def offset_past(self, size: int, time_us: int) -> int:
        """Where the log would begin without `size` of its oldest bytes, older than a time.

        Takes in at most the rest of the oldest file: who wants more asks again.
        """
        state = self.state()
        if state.oldest == state.next:
            return state.next
        segment, begin = self._begin(state)
        target = begin + size
        noted = self._files.noted
        at = min(noted(segment, state, "at", target + 1), noted(segment, state, "time_us", time_us))
        for frame in self._files.frames(segment, at, state):
            header = frame.header
            if header.timestamp_us >= time_us or frame.segment != segment or frame.at >= target:
                return max(header.first, state.oldest)
            if frame.at + header.size > target:
                ends = np.cumsum(sizes_of(frame.data, frame.begin)) + frame.at + HEADER_BYTES
                gone = int(np.searchsorted(ends, target, "left")) + 1
                return max(header.first + gone, state.oldest)
        return state.next


def _between(columns: RecordColumns, begin: int, end: int) -> RecordColumns:
    offsets = columns.offsets
    if offsets[0] >= begin and offsets[-1] < end:
        return columns
    return columns.where((offsets >= begin) & (offsets < end))
