"""Records of many frames as columns: NumPy takes them apart, no record is an object of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.bus.embedded.log_files import Frame
from mercury.bus.embedded.record_frame import HEADER_BYTES, ROW_BYTES
from mercury.bus.headers import find_header, header_prefix

_ROW = np.dtype(
    [("partition", "<u2"), ("key", "<u4"), ("headers", "<u4"), ("value", "<u4")], align=False
)
assert _ROW.itemsize == ROW_BYTES

Numbers = NDArray[np.int64]


class Blobs(NamedTuple):
    """A piece of a buffer for each record; a size below zero says that there is none."""

    data: NDArray[np.uint8]
    begins: Numbers
    sizes: Numbers

    def joined(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Where each piece begins and the last one ends, and all pieces one after the other."""
        sizes = np.maximum(self.sizes, 0)
        ends = np.cumsum(sizes)
        bounds = np.zeros(len(sizes) + 1, np.int32)
        bounds[1:] = ends
        if len(sizes) and sizes[0] and (sizes == sizes[0]).all():
            index = self.begins[:, None] + np.arange(sizes[0])
        else:
            index = np.repeat(self.begins - (ends - sizes), sizes) + np.arange(bounds[-1])
        return bounds, self.data[index.ravel()]

    def where(self, chosen: NDArray[np.bool_]) -> Blobs:
        return Blobs(self.data, self.begins[chosen], self.sizes[chosen])


class RecordColumns(NamedTuple):
    """Records, a column at a time."""

    partitions: NDArray[np.int32]
    offsets: Numbers
    times_us: Numbers
    keys: Blobs
    headers: Blobs
    values: Blobs

    def __len__(self) -> int:
        return len(self.offsets)

    def header(self, name: str, usual_size: int) -> Blobs:
        """The values of one header; quick where it is the only one and as long as usual."""
        prefix = np.frombuffer(header_prefix(name, usual_size), np.uint8)
        data, begins, sizes = self.headers
        usual = sizes == len(prefix) + usual_size
        heads = data[begins[usual, None] + np.arange(len(prefix))]
        usual[usual] = (heads == prefix).all(axis=1)
        found_begins = np.where(usual, begins + len(prefix), 0)
        found_sizes = np.where(usual, usual_size, -1)
        for at in np.flatnonzero(~usual & (sizes > 0)):
            begin = int(begins[at])
            place = find_header(data[begin : begin + int(sizes[at])].tobytes(), name)
            if place is not None:
                found_begins[at], found_sizes[at] = begin + place[0], place[1]
        return Blobs(data, found_begins, found_sizes)

    def where(self, chosen: NDArray[np.bool_]) -> RecordColumns:
        return RecordColumns(
            self.partitions[chosen],
            self.offsets[chosen],
            self.times_us[chosen],
            self.keys.where(chosen),
            self.headers.where(chosen),
            self.values.where(chosen),
        )


def columns_of(frames: Sequence[Frame]) -> RecordColumns:
    """The records of frames that lie in one buffer."""
    data = frames[0].data
    rows = np.concatenate(
        [
            np.frombuffer(data, _ROW, frame.header.records, frame.begin + HEADER_BYTES)
            for frame in frames
        ]
    )
    counts = np.array([frame.header.records for frame in frames])
    firsts = np.concatenate(([0], np.cumsum(counts)[:-1]))  # of the records of each frame
    keys, headers, values = (rows[name].astype(np.int64) for name in ("key", "headers", "value"))
    sizes = keys + headers + values
    before = np.cumsum(sizes) - sizes
    bodies = np.array(
        [frame.begin + HEADER_BYTES + ROW_BYTES * frame.header.records for frame in frames]
    )
    begins = before + np.repeat(bodies - before[firsts], counts)
    offsets = np.array([frame.header.first for frame in frames]) - firsts
    buffer = np.frombuffer(data, np.uint8)
    return RecordColumns(
        rows["partition"].astype(np.int32),
        np.repeat(offsets, counts) + np.arange(len(rows)),
        np.repeat(np.array([frame.header.timestamp_us for frame in frames], np.int64), counts),
        Blobs(buffer, begins, keys),
        Blobs(buffer, begins + keys, headers),
        Blobs(buffer, begins + keys + headers, values),
    )
