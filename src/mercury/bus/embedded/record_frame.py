"""Records that are appended together, as they lie in a file and travel to a waiting reader.

A frame is a header, a row of lengths for each record, and then each record's key, headers and
value. Rows have a fixed size, so that NumPy reads a column of them at once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mercury.bus.api import Record
from mercury.bus.headers import decode_headers

# Size of the whole, check sum of all that follows it, first offset, time of all, count.
_HEADER = struct.Struct("<IIQQI")
_CHECKED = struct.Struct("<QQI")
_SIZES = struct.Struct("<II")
_ROW = struct.Struct("<HIII")  # partition; lengths of key, headers, value
HEADER_BYTES = _HEADER.size
ROW_BYTES = _ROW.size

Entry = tuple[bytes, bytes, bytes]  # key, headers as one blob, value


class FrameHeader(NamedTuple):
    """What the first bytes of a frame say."""

    size: int
    check: int
    first: int
    timestamp_us: int
    records: int

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + self.records


def pack_frame(
    first: int,
    timestamp_us: int,
    entries: Sequence[Entry],
    partitions: int,
    spread: Iterator[int],
) -> bytes:
    """Number records from `first` on, and make a frame of them.

    The key picks the partition, the same in every process and on every machine; records without
    a key are spread.
    """
    pack_row, crc32 = _ROW.pack, zlib.crc32
    parts = [b""]
    parts += [
        pack_row(
            (crc32(key) if key else next(spread)) % partitions, len(key), len(headers), len(value)
        )
        for key, headers, value in entries
    ]
    for entry in entries:
        parts += entry
    parts[0] = _CHECKED.pack(first, timestamp_us, len(entries))
    checked = b"".join(parts)
    return _SIZES.pack(_SIZES.size + len(checked), zlib.crc32(checked)) + checked


def read_header(data: bytes, at: int = 0) -> FrameHeader:
    """The header of the frame that begins at a byte."""
    return FrameHeader(*_HEADER.unpack_from(data, at))


def fits(header: FrameHeader, first: int, end: int) -> bool:
    """Whether a header can be of a frame of records between two offsets."""
    least = HEADER_BYTES + ROW_BYTES * header.records
    return header.first >= first and header.end <= end and header.size >= least > HEADER_BYTES


def possible_frames(data: bytes, first: int, end: int) -> Iterator[int]:
    """Where a frame between two offsets might begin, in what was damaged."""
    count = len(data) - HEADER_BYTES + 1
    if count <= 0:
        return
    firsts = np.ndarray((count,), "<u8", data, _SIZES.size, (1,))
    for at in np.flatnonzero((firsts >= first) & (firsts < end)).tolist():
        if fits(read_header(data, at), first, end):
            yield at


def is_whole(data: bytes, at: int, header: FrameHeader) -> bool:
    """Whether the frame is as it was written."""
    if header.size < HEADER_BYTES + ROW_BYTES * header.records or at + header.size > len(data):
        return False
    return zlib.crc32(memoryview(data)[at + _SIZES.size : at + header.size]) == header.check


def records_of(topic: str, data: bytes, at: int = 0) -> list[Record]:
    """All records of the frame that begins at a byte."""
    _, _, first, timestamp_us, count = _HEADER.unpack_from(data, at)
    row = at + HEADER_BYTES
    body = row + ROW_BYTES * count
    records = []
    for offset in range(first, first + count):
        partition, key_size, headers_size, value_size = _ROW.unpack_from(data, row)
        row += ROW_BYTES
        after_key = body + key_size
        after_headers = after_key + headers_size
        end = after_headers + value_size
        records.append(
            Record(
                topic,
                partition,
                offset,
                timestamp_us,
                data[body:after_key],
                decode_headers(data[after_key:after_headers]) if headers_size else (),
                data[after_headers:end],
            )
        )
        body = end
    return records


def sizes_of(data: bytes, at: int = 0) -> list[int]:
    """How many bytes each record of a frame takes."""
    count = read_header(data, at).records
    rows = memoryview(data)[at + HEADER_BYTES : at + HEADER_BYTES + ROW_BYTES * count]
    return [ROW_BYTES + key + headers + value for _, key, headers, value in _ROW.iter_unpack(rows)]
