"""The files of one topic's records: segments that only grow, each with a sparse index."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import numpy as np

from mercury.bus.embedded.lock import open_shared
from mercury.bus.embedded.log_page import LogState
from mercury.bus.embedded.record_frame import (
    HEADER_BYTES,
    FrameHeader,
    fits,
    is_whole,
    possible_frames,
    read_header,
)

log = logging.getLogger("mercury.bus.embedded")

READ_BYTES = 256 * 1024
# The index has an entry about this often: no more bytes are walked to find a record.
INDEX_EVERY_BYTES = 64 * 1024
EXPLAINED = "explained-gaps"
# Damage that was accepted; or offsets left out after a stop of the machine, which may have been
# given to records that it lost.
Explanation = Literal["accepted", "skipped"]
_ENTRY = np.dtype([("offset", "<u8"), ("at", "<u8"), ("time_us", "<u8")])


class Frame(NamedTuple):
    """A frame and where it lies."""

    segment: int
    at: int  # in the segment
    header: FrameHeader
    data: bytes
    begin: int  # in `data`


class Place(NamedTuple):
    """Where a frame should begin, and with which offset."""

    segment: int
    at: int
    offset: int


class Gap(NamedTuple):
    """Offsets that hold no record that can be read."""

    segment: int
    at: int
    size: int  # bytes that cannot be read; 0 where a file is short or missing
    first: int
    end: int  # the offset after the last
    since_us: int  # time of what was read before it; 0 if that is not known


class LogFiles:
    """Finds, reads and writes the files in a topic's folder."""

    def __init__(self, folder: Path, access: int = os.O_RDWR) -> None:
        self.folder = folder
        self._access = access
        self._open: dict[int, int] = {}  # segment -> descriptor
        self._segments: list[int] = []  # as last seen
        self._reported: set[tuple[int, int]] = set()  # offsets that were said to be missing

    def close(self) -> None:
        for segment in tuple(self._open):
            self._close_one(segment)

    def path(self, segment: int) -> Path:
        return self.folder / f"{segment:020}.log"

    def index_path(self, segment: int) -> Path:
        return self.path(segment).with_suffix(".index")

    def segments(self, newest: int | None = None) -> list[int]:
        """Names of all segments; from memory, if `newest` is among those."""
        if newest is None or not self._segments or self._segments[-1] < newest:
            names = (name for name in os.listdir(self.folder) if name.endswith(".log"))
            self._segments = sorted(int(name.removesuffix(".log")) for name in names)
        return self._segments

    def forget(self) -> None:
        """Look at the folder again: somebody has removed files."""
        self._segments = []

    def remove(self, segment: int) -> None:
        self._close_one(segment)
        self.path(segment).unlink(missing_ok=True)
        self.index_path(segment).unlink(missing_ok=True)
        self.forget()

    def descriptor(self, segment: int, *, create: bool = False) -> int:
        file = self._open.get(segment)
        if file is None:
            while len(self._open) > 1:  # one to write and one to read
                self._close_one(next(iter(self._open)))
            path = self.path(segment)
            if create:
                file = open_shared(path, self._access, like=self.folder)
            else:
                file = os.open(path, self._access | os.O_CLOEXEC)
            self._open[segment] = file
        return file

    def _close_one(self, segment: int) -> None:
        file = self._open.pop(segment, None)
        if file is not None:
            os.close(file)

    def size(self, segment: int, state: LogState) -> int:
        """How many bytes of a segment are to be read."""
        size = os.fstat(self.descriptor(segment)).st_size
        return min(size, state.size) if segment == state.segment else size

    def can_append(self, segment: int, size: int) -> bool:
        """Whether the segment is there, with all that was written to it."""
        try:
            there = os.fstat(self.descriptor(segment))
        except FileNotFoundError:
            return False
        return there.st_nlink > 0 and there.st_size >= size

    # Writing.

    def create(self, segment: int) -> None:
        """Begin a file; one of its name that was lost may still be open here."""
        self._close_one(segment)
        self.descriptor(segment, create=True)
        self.forget()

    def write(self, segment: int, at: int, data: bytes) -> None:
        file = self.descriptor(segment, create=True)
        written = os.pwrite(file, data, at)
        while written < len(data):  # the next try says why
            written += os.pwrite(file, data[written:], at + written)

    def note(self, segment: int, offset: int, at: int, time_us: int) -> None:
        """Add to the index where a frame begins. An entry without its frame does no harm."""
        entry = np.array([(offset, at, time_us)], _ENTRY)
        self._add(self.index_path(segment), entry.tobytes())

    def _add(self, path: Path, data: bytes) -> None:
        file = open_shared(path, os.O_WRONLY | os.O_APPEND, like=self.folder)
        try:
            os.write(file, data)
        finally:
            os.close(file)

    # Reading.

    def noted(self, segment: int, state: LogState, column: str, below: int) -> Place:
        """The last place that the index has with less than this in a column."""
        try:
            data = self.index_path(segment).read_bytes()
        except FileNotFoundError:
            data = b""
        entries = np.frombuffer(data, _ENTRY, len(data) // _ENTRY.itemsize)
        size = self.size(segment, state)
        for offset, at, time_us in reversed(entries[entries[column] < below].tolist()):
            # The index has no check sums: an entry counts only where the frame agrees.
            if at + HEADER_BYTES <= size:
                header = read_header(os.pread(self.descriptor(segment), HEADER_BYTES, at))
                if (header.first, header.timestamp_us) == (offset, time_us):
                    return Place(segment, at, offset)
        return Place(segment, 0, segment)

    def first_us(self, segment: int, state: LogState) -> int:
        """Time of a segment's first whole frame; if it has none, that is yet to come."""
        size = self.size(segment, state)
        for one in self._walk_segment(Place(segment, 0, segment), size, sys.maxsize):
            if isinstance(one, Frame):
                return one.header.timestamp_us
        return sys.maxsize

    def frames(self, place: Place, state: LogState) -> Iterator[Frame]:
        """The frames from a place to the end of the log; what is missing is logged once."""
        for one in self.walk(place, state):
            if isinstance(one, Frame):
                yield one
            else:
                self.report(one)

    def report(self, gap: Gap) -> None:
        """Log a gap that is not explained, once."""
        if (gap.first, gap.end) not in self._reported:
            self._reported.add((gap.first, gap.end))
            if self.explanation(gap) is None:
                log.error("%s", self.describe(gap))

    def explanation(self, gap: Gap) -> Explanation | None:
        """Why nothing is in a gap, if somebody has said so."""
        try:
            lines = (self.folder / EXPLAINED).read_text("ascii", "replace").splitlines()
        except FileNotFoundError:
            return None
        for first, end, why in (line.split() for line in lines if line.count(" ") == 2):
            known = first.isdecimal() and end.isdecimal() and why in get_args(Explanation)
            if known and int(first) <= gap.first and gap.end <= int(end):
                return cast("Explanation", why)
        return None

    def explain(self, first: int, end: int, why: Explanation) -> None:
        """Note why the offsets from `first` up to `end` hold nothing."""
        self._add(self.folder / EXPLAINED, f"{first} {end} {why}\n".encode())

    def walk(self, place: Place, state: LogState) -> Iterator[Frame | Gap]:
        """The frames from a place to the end of the log, and what is missing between them."""
        later = [one for one in self.segments(state.segment) if place.segment < one]
        later = [one for one in later if one <= state.segment]
        for segment, until in zip([place.segment, *later], [*later, state.next], strict=True):
            here = place if segment == place.segment else Place(segment, 0, place.offset)
            offset = yield from self._walk_segment(here, self.size(segment, state), until)
            place = Place(segment, 0, offset)

    def _walk_segment(
        self, place: Place, size: int, until: int
    ) -> Generator[Frame | Gap, None, int]:
        segment, at, offset = place
        wanted, damaged_at, last_us = READ_BYTES, -1, 0
        while at < size:
            asked = min(wanted, size - at)
            data = os.pread(self.descriptor(segment), asked, at)
            if len(data) < asked:  # somebody has cut it meanwhile
                size = at + len(data)
            here, wanted = 0, READ_BYTES
            while here + HEADER_BYTES <= len(data):
                header = read_header(data, here)
                if here + header.size > len(data):
                    wanted = max(READ_BYTES, header.size)
                    break
                if not (fits(header, offset, until) and is_whole(data, here, header)):
                    break
                if header.first > offset:
                    begin = at + here if damaged_at < 0 else damaged_at
                    yield Gap(segment, begin, at + here - begin, offset, header.first, last_us)
                damaged_at, offset, last_us = -1, header.end, header.timestamp_us
                yield Frame(segment, at + here, header, data, here)
                here += header.size
            # Whatever was cut short is read with the next bytes, if there are such.
            if here == 0 and (wanted <= len(data) or wanted > size - at):
                damaged_at = at if damaged_at < 0 else damaged_at
                here = self._next_whole(segment, at, size, offset, until) - at
            at += here
        if offset < until:
            begin = max(at, size) if damaged_at < 0 else damaged_at
            yield Gap(segment, begin, max(0, size - begin), offset, until, last_us)
        return until

    def _next_whole(self, segment: int, at: int, size: int, offset: int, until: int) -> int:
        """Where the first whole frame begins behind a damaged one; if none does, the end."""
        file = self.descriptor(segment)
        following = os.pread(file, HEADER_BYTES, at)
        if len(following) == HEADER_BYTES:
            after = at + read_header(following).size  # which may be right
            if after > at and self._is_whole(file, after, size, offset, until):
                return after
        for begin in range(at + 1, size, READ_BYTES):
            data = os.pread(file, min(READ_BYTES + HEADER_BYTES - 1, size - begin), begin)
            for here in possible_frames(data, offset, until):
                if self._is_whole(file, begin + here, size, offset, until):
                    return begin + here
        return size

    def _is_whole(self, file: int, at: int, size: int, offset: int, until: int) -> bool:
        data = os.pread(file, HEADER_BYTES, at) if at + HEADER_BYTES <= size else b""
        if len(data) < HEADER_BYTES:
            return False
        header = read_header(data)
        if at + header.size > size or not fits(header, offset, until):
            return False
        return is_whole(os.pread(file, header.size, at), 0, header)

    def describe(self, gap: Gap) -> str:
        """What is missing, in one sentence."""
        many = gap.end - gap.first > 1
        lost = f"records {gap.first} to {gap.end - 1}" if many else f"record {gap.first}"
        lost += " cannot be read"
        if gap.since_us:
            since = datetime.fromtimestamp(gap.since_us // 1_000_000, UTC)
            lost += f", sent after {since:%Y-%m-%d %H:%M:%S} UTC"
        if gap.size:
            return f"the bus file {self.path(gap.segment)} is damaged at byte {gap.at}: {lost}"
        return f"the bus folder {self.folder} lacks a file or the end of one: {lost}"
