"""The records of one topic: appended to files, read and found again, let go.

A frame of records is written first; then the new end is published in the topic's page, and only
then can anybody read it. Whoever dies between the two has appended nothing, and the next writer
overwrites what it left. Both are in the kernel's hands at once, so that a dead process loses
nothing. What the kernel had not yet brought to the disk when the machine itself stopped is found
by the frames' check sums when the topic is first opened afterwards.

Damage costs the damaged frames: readers go on with the next whole one. No offset is given twice,
even if the records that had it were lost: others may remember how far they have read.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from mercury.bus.api import Record
from mercury.bus.embedded.disk_sync import sync_file
from mercury.bus.embedded.lock import open_shared
from mercury.bus.embedded.log_files import (
    INDEX_EVERY_BYTES,
    Explanation,
    Frame,
    Gap,
    LogFiles,
    Place,
    log,
)
from mercury.bus.embedded.log_page import LogPage, LogState, PageDamagedError
from mercury.bus.embedded.record_columns import RecordColumns, columns_of
from mercury.bus.embedded.record_frame import (
    HEADER_BYTES,
    Entry,
    pack_frame,
    records_of,
    sizes_of,
)

SEGMENT_BYTES = 64 * 1024**2
PAGE = "head"
RESERVED = "reserved"
# So many offsets are reserved at a time, which takes a write to the disk.
RESERVED_OFFSETS = 2**16
_NOWHERE = -1, Place(-1, -1, -1)
_NOTHING = LogState(0, 0, 0, 0, 0)
ENDLESS = LogState(0, 2**63 - 1, 2**63 - 1, 2**63 - 1, 0)


class TopicLog:
    """One process's hold on a topic's records."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        hold_lock: Callable[[], AbstractContextManager[None]] = nullcontext,
        committed: Callable[[], int] = int,
    ) -> None:
        """`hold_lock` keeps other writers away, `committed` tells how far any group has read."""
        self.folder = folder
        self.topic = topic
        self._hold_lock = hold_lock
        self._committed = committed
        self._files = LogFiles(folder)
        self._reserved = 0  # offsets before this one can be given out
        # Where the last reading stopped: the offset, and where its frame begins.
        self._resume = _NOWHERE
        with hold_lock():
            self._page = self._opened_page()
            try:
                if not self._page.is_of_this_boot:
                    self._recover()
            except BaseException:
                self.close()
                raise

    @staticmethod
    def create(folder: Path) -> None:
        """Make an empty topic; what an abandoned one left there is removed."""
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=_folder_mode(folder))
        with closing(LogFiles(folder)) as files:
            files.create(1)
        LogPage.create(folder / PAGE, LogState(oldest=1, next=1, segment=1, size=0, last_us=0))

    def close(self) -> None:
        self._files.close()
        self._page.close()

    def newest_file(self) -> Path:
        """Where records are being appended."""
        return self._files.path(self.state().segment)

    def state(self) -> LogState:
        """How far the topic goes now."""
        if self._page.is_current:
            try:
                return self._page.state()
            except PageDamagedError:
                pass  # is mended under the lock
        with self._hold_lock():
            return self._locked_state()

    # Writing: the caller holds the topic's lock.

    def append(
        self,
        entries: Sequence[Entry],
        now_us: int,
        partitions: int,
        spread: Iterator[int],
        *,
        uptime_us: int = 0,
        sync: bool = False,
    ) -> bytes:
        """Append records; return the frame they became, with `sync` when it is on the disk.

        `now_us` is the time of the day, which may be set; `uptime_us` is a clock that never is.
        """
        state = self._locked_state()
        if state.size >= SEGMENT_BYTES or not self._files.can_append(state.segment, state.size):
            state = self._roll(state)
        end = state.next + len(entries)
        if end > self._reserved:
            self._reserve(end)
        if now_us < state.last_us:
            # Time never goes back in a topic. When somebody has set the clock back, it goes on at
            # half its pace until the clock has caught up.
            now_us = state.last_us + max(0, uptime_us - state.uptime_us) // 2
        frame = pack_frame(state.next, now_us, entries, partitions, spread)
        size = state.size + len(frame)
        self._files.write(state.segment, state.size, frame)
        if state.size // INDEX_EVERY_BYTES != size // INDEX_EVERY_BYTES:
            self._files.note(state.segment, state.next, state.size, now_us)
        if sync:
            sync_file(self._files.path(state.segment))
            if state.size == 0:
                sync_file(self.folder)
                sync_file(self.folder.parent)
        self._page.publish_end(LogState(state.oldest, end, state.segment, size, now_us, uptime_us))
        return frame

    def _roll(self, state: LogState) -> LogState:
        rolled = state._replace(segment=state.next, size=0)
        self._files.create(rolled.segment)
        self._page.publish_end(rolled)
        return rolled

    def remove(self, before: int) -> int:
        """Let go of the records before an offset; return how many these were."""
        state = self._locked_state()
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
                sync_file(self._files.path(segment))
        self._page.synced = newest

    # What a stop of the machine or a bad disk has left: the caller holds the topic's lock.

    def _locked_state(self) -> LogState:
        if not self._page.is_current:
            known = self._page
            self._page = self._opened_page(known.newest_whole())
            known.close()
        try:
            return self._page.state()
        except PageDamagedError as error:
            log.error("%s: made anew from the records", error)
            return self._recover()

    def _opened_page(self, known: LogState | None = None) -> LogPage:
        """The page as others see it; made anew if it is missing."""
        path = self.folder / PAGE
        try:
            return LogPage(path)
        except PageDamagedError as error:
            log.error("%s: made anew from the records", error)
        if not self.folder.exists():
            self.folder.mkdir(mode=_folder_mode(self.folder))
        LogPage.create(path, known or _NOTHING, is_checked=known is not None)
        return LogPage(path)

    def _recover(self) -> LogState:
        """Find out from the files how far the topic goes, and keep all that is whole."""
        page, files = self._page, self._files
        known = page.newest_whole() or _NOTHING
        files.forget()
        segments = files.segments()
        if page.is_of_this_boot and known.segment in segments:
            # All was written, and the page has missed at most what was published last.
            end, last_us = self._end_behind(Place(known.segment, known.size, known.next))
        else:
            next_ = max(1, known.next, self._committed() + 1, self._read_reserved())
            if not segments:
                files.create(next_)
                segments = [next_]
            begin = next((one for one in segments if one >= page.synced), segments[0])
            end, last_us = self._end_behind(Place(begin, 0, begin))
            if next_ > end.offset:
                files.explain(end.offset, next_, "skipped")
                end = end._replace(offset=next_)
        path = files.path(end.segment)
        if path.stat().st_size > end.at:
            os.truncate(path, end.at)
        oldest = min(max(known.oldest, segments[0]), end.offset)
        last_us = max(known.last_us, last_us)
        uptime_us = time.monotonic_ns() // 1000
        state = LogState(oldest, end.offset, end.segment, end.at, last_us, uptime_us)
        page.restore(state)
        return state

    def _end_behind(self, place: Place) -> tuple[Place, int]:
        """Where the last whole frame behind a place ends, and its time."""
        last_us = 0
        for one in self._files.walk(place, ENDLESS):
            if isinstance(one, Frame):
                place = _behind(one)
                last_us = one.header.timestamp_us
            elif one.end < ENDLESS.next:
                self._files.report(one)
        newest = self._files.segments()[-1]
        if place.segment < newest:  # nothing in it is whole
            place = Place(newest, 0, max(newest, place.offset))
        return place, last_us

    def _reserve(self, end: int) -> None:
        """Let the disk know how far offsets may have been given out."""
        reserved = self._read_reserved()
        if end > reserved:
            reserved = end + RESERVED_OFFSETS
            number = reserved.to_bytes(8, "little")
            check = zlib.crc32(number).to_bytes(4, "little")
            file = open_shared(self.folder / RESERVED, os.O_WRONLY, like=self.folder)
            try:
                os.pwrite(file, number + check, 0)
                os.fdatasync(file)
            finally:
                os.close(file)
        self._reserved = reserved

    def _read_reserved(self) -> int:
        """Offsets from this one on were never given out; 0 if nobody knows."""
        try:
            data = (self.folder / RESERVED).read_bytes()
        except FileNotFoundError:
            return 0
        number, check = data[:8], data[8:12]
        whole = zlib.crc32(number) == int.from_bytes(check, "little") and len(data) == 12
        return int.from_bytes(number, "little") if whole else 0

    def gaps(self) -> Iterator[tuple[Gap, Explanation | None]]:
        """All that is missing, and why, if that is known; reads everything."""
        state = self.state()
        for one in self._walk(state.oldest, state):
            if isinstance(one, Gap):
                yield one, self._files.explanation(one)

    def accept_gaps(self) -> list[Gap]:
        """Take what is missing as lost: it is not reported any more. Return what was not known."""
        found = [gap for gap, why in self.gaps() if why is None]
        for gap in found:
            self._files.explain(gap.first, gap.end, "accepted")
        return found

    # Reading.

    def read(self, after: int, limit: int, owned: frozenset[int] | None = None) -> list[Record]:
        """Up to `limit` records after an offset, of some partitions or of all."""
        records: list[Record] = []
        state = self.state()
        first = max(after + 1, state.oldest)
        for frame in self._frames_from(first, state):
            found = records_of(self.topic, frame.data, frame.begin)
            header = frame.header
            if header.first < first:
                found = found[first - header.first :]
            if owned is not None:
                found = [one for one in found if one.partition in owned]
            records += found
            if len(records) > limit:
                del records[limit:]
                place = Place(frame.segment, frame.at, header.first)
                self._resume = records[-1].offset + 1, place
                break
            self._resume = header.end, _behind(frame)
            if len(records) == limit:
                break
        return records

    def columns(self, begin: int, end: int) -> Iterator[RecordColumns]:
        """The records from one offset up to another, as columns of many at a time."""
        gathered: list[Frame] = []
        state = self.state()
        for frame in self._frames_from(max(begin, state.oldest), state):
            if gathered and gathered[0].data is not frame.data:
                yield _between(columns_of(gathered), begin, end)
                gathered = []
            if frame.header.first >= end:
                break
            gathered.append(frame)
            self._resume = frame.header.end, _behind(frame)
        if gathered:
            yield _between(columns_of(gathered), begin, end)

    def _frames_from(self, first: int, state: LogState) -> Iterator[Frame]:
        while first < state.next:
            try:
                for one in self._walk(first, state):
                    if isinstance(one, Frame):
                        first = one.header.end
                        yield one
                    elif one.end > self.state().oldest:
                        self._files.report(one)
                return
            except FileNotFoundError:  # removed meanwhile, and not found again
                self._files.forget()
                self._resume = _NOWHERE
                state = self.state()
                first = max(first, state.oldest)

    def _walk(self, first: int, state: LogState) -> Iterator[Frame | Gap]:
        """Frames and what is missing, from the one on that holds an offset."""
        offset, place = self._resume
        if offset != first:
            segments = self._segments(state)
            index = bisect_right(segments, first) - 1
            if index < 0:
                begin, end = max(first, self.state().oldest), (segments or [state.next])[0]
                if begin < end:  # retention has not removed it
                    yield Gap(0, 0, 0, begin, end, 0)
                if not segments:
                    return
            place = self._files.noted(segments[max(0, index)], state, "offset", first + 1)
        for one in self._files.walk(place, state):
            if first < (one.header.end if isinstance(one, Frame) else one.end):
                yield one

    def _segments(self, state: LogState) -> list[int]:
        return [one for one in self._files.segments(state.segment) if one <= state.segment]

    def _find(self, offset: int, state: LogState) -> Frame | None:
        """The frame that holds an offset, or else the next one."""
        return next(self._frames_from(offset, state), None)

    def offset_at(self, time_us: int) -> int:
        """The first offset at or after a time."""
        state = self.state()
        segments = self._segments(state)
        if state.last_us < time_us or not segments:
            return state.next
        # The last that begins before that time.
        first_us = partial(self._files.first_us, state=state)
        segment = segments[max(0, bisect_left(segments, time_us, key=first_us) - 1)]
        place = self._files.noted(segment, state, "time_us", time_us)
        for frame in self._files.frames(place, state):
            if frame.header.timestamp_us >= time_us:
                return max(frame.header.first, state.oldest)
        return state.next

    # What is kept, for retention.

    def kept_bytes(self) -> int:
        """How much the records take that are kept."""
        state = self.state()
        if state.oldest == state.next:
            return 0
        segment, begin = self._begin(state)
        kept = [one for one in self._segments(state) if one >= segment]
        return sum(self._files.size(one, state) for one in kept) - begin

    def _begin(self, state: LogState) -> tuple[int, int]:
        """Segment and byte where the oldest record begins."""
        frame = self._find(state.oldest, state)
        if frame is None:
            return min(self._segments(state), default=state.segment), 0
        gone = max(0, state.oldest - frame.header.first)
        if not gone:
            return frame.segment, frame.at
        return frame.segment, frame.at + HEADER_BYTES + sum(
            sizes_of(frame.data, frame.begin)[:gone]
        )

    def offset_past(self, size: int) -> int:
        """Where the log would begin without `size` of its oldest bytes.

        Takes in at most the rest of the oldest file: who wants more asks again.
        """
        state = self.state()
        segment, begin = self._begin(state)
        target = begin + size
        if state.oldest == state.next or segment not in self._segments(state):
            return state.next
        place = self._files.noted(segment, state, "at", target + 1)
        for frame in self._files.frames(place, state):
            header = frame.header
            if frame.segment != segment or frame.at >= target:
                return max(header.first, state.oldest)
            if frame.at + header.size > target:
                ends = np.cumsum(sizes_of(frame.data, frame.begin)) + frame.at + HEADER_BYTES
                gone = int(np.searchsorted(ends, target, "left")) + 1
                return max(header.first + gone, state.oldest)
        return state.next


def _folder_mode(folder: Path) -> int:
    return folder.parent.stat().st_mode & 0o777


def _behind(frame: Frame) -> Place:
    return Place(frame.segment, frame.at + frame.header.size, frame.header.end)


def _between(columns: RecordColumns, begin: int, end: int) -> RecordColumns:
    offsets = columns.offsets
    if offsets[0] >= begin and offsets[-1] < end:
        return columns
    return columns.where((offsets >= begin) & (offsets < end))
