"""The files of one topic's records: segments that only grow, each with a sparse index."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mercury.bus.embedded.log_page import LogState
from mercury.bus.embedded.record_frame import HEADER_BYTES, FrameHeader, is_whole, read_header
from mercury.model.errors import BusCorruptError

READ_BYTES = 256 * 1024
# The index has an entry about this often: no more bytes are walked to find a record.
INDEX_EVERY_BYTES = 64 * 1024
_ENTRY = np.dtype([("offset", "<u8"), ("at", "<u8"), ("time_us", "<u8")])


class Frame(NamedTuple):
    """A frame and where it lies."""

    segment: int
    at: int  # in the segment
    header: FrameHeader
    data: bytes
    begin: int  # in `data`


class LogFiles:
    """Finds, reads and writes the files in a topic's folder."""

    def __init__(self, folder: Path, access: int = os.O_RDWR) -> None:
        self.folder = folder
        self._access = access
        self._open: dict[int, int] = {}  # segment -> descriptor
        self._segments: list[int] = []  # as last seen

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
            flags = self._access | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            file = self._open[segment] = os.open(self.path(segment), flags, 0o666)
        return file

    def _close_one(self, segment: int) -> None:
        file = self._open.pop(segment, None)
        if file is not None:
            os.close(file)

    def size(self, segment: int, state: LogState) -> int:
        """How many bytes of a segment are good."""
        if segment == state.segment:
            return state.size
        return os.fstat(self.descriptor(segment)).st_size

    def first_us(self, segment: int) -> int:
        """Time of a segment's first frame; of an empty one it is yet to come."""
        header = os.pread(self.descriptor(segment), HEADER_BYTES, 0)
        return read_header(header).timestamp_us if len(header) == HEADER_BYTES else sys.maxsize

    # Writing.

    def write(self, segment: int, at: int, data: bytes) -> None:
        file = self.descriptor(segment, create=True)
        written = os.pwrite(file, data, at)
        while written < len(data):  # the next try says why
            written += os.pwrite(file, data[written:], at + written)

    def note(self, segment: int, offset: int, at: int, time_us: int) -> None:
        """Add to the index where a frame begins. A note without its frame does no harm."""
        entry = np.array([(offset, at, time_us)], _ENTRY)
        with self.index_path(segment).open("ab", buffering=0) as file:
            file.write(entry.tobytes())

    # Reading.

    def noted(self, segment: int, state: LogState, column: str, below: int) -> int:
        """Where the last frame begins that the index has with less than this in a column."""
        try:
            data = self.index_path(segment).read_bytes()
        except FileNotFoundError:
            return 0
        entries = np.frombuffer(data, _ENTRY, len(data) // _ENTRY.itemsize)
        if segment == state.segment:
            entries = entries[entries["at"] < state.size]
        return int(entries["at"][entries[column] < below].max(initial=0))

    def frames(self, segment: int, at: int, state: LogState) -> Iterator[Frame]:
        """Walk from the beginning of a frame to the end of the log."""
        yield from self._frames_in(segment, at, self.size(segment, state))
        if segment < state.segment:
            for later in self.segments(state.segment):
                if segment < later <= state.segment:
                    yield from self._frames_in(later, 0, self.size(later, state))

    def _frames_in(self, segment: int, at: int, end: int) -> Iterator[Frame]:
        file = self.descriptor(segment)
        wanted = READ_BYTES
        while at < end:
            data = os.pread(file, min(wanted, end - at), at)
            here, wanted = 0, READ_BYTES
            while here + HEADER_BYTES <= len(data):
                header = read_header(data, here)
                if here + header.size > len(data):
                    wanted = max(READ_BYTES, header.size)
                    break
                if not is_whole(data, here, header):
                    raise self.damaged(segment, at + here)
                yield Frame(segment, at + here, header, data, here)
                here += header.size
            # Whatever was cut short is read with the next bytes, if there are such.
            if here == 0 and (len(data) == end - at or wanted > end - at):
                raise self.damaged(segment, at)
            at += here

    def damaged(self, segment: int, at: int) -> BusCorruptError:
        return BusCorruptError(f"the bus file {self.path(segment)} is damaged at byte {at}")
