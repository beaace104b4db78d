"""What workers pass to each other: further segments of frames (see match_frames.py).

    S  steps of entities, on `tiles`       rows of STEPS
    L  what the entities of such steps are: for each step that asks for it, in order, a length
       u32 and a `Declaration`
    K  who was inside, beside an arrival   rows of SEEDS
    G  sightings of pairs, on `sightings`  rows of SIGHTINGS
    T  the time                            i64, microseconds
    N  tiles that are split                rows of SPLITS, on `entities`

Every row says which offset of its source it follows from: batches of work need not be cut alike
when it is done again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mercury.model.errors import PacketError
from mercury.wire.match_frames import FrameWriter, Rows, pieces, rows_of


class Step(IntEnum):
    """What an entity does in a lane."""

    MOVE = 0
    ENTER = 1  # it is registered
    CHANGE = 2
    LEAVE = 3  # it moves a last time; a publication goes on to `to_lane`
    WITHDRAW = 4
    ARRIVE = 5  # a publication from another lane, with those it is inside of


DECLARING = (Step.ENTER, Step.CHANGE, Step.ARRIVE)  # steps that have a declaration
_DECLARES = np.isin(np.arange(256), DECLARING)

STEPS = np.dtype(
    [
        ("origin", "<i8"),
        ("key", "<u8"),
        ("stay", "<i8"),  # of a publication: which of its registrations this is about
        ("next_stay", "<i8"),  # of one that leaves
        ("time_us", "<i8"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("accuracy_m", "<f4"),
        ("step", "u1"),
        ("reason", "u1"),
        ("to_lane", "u1"),
        ("flags", "u1"),
    ]
)
SUBSCRIPTION, PLACED = 1, 2  # flags

SEEDS = np.dtype(
    [
        ("row", "<u4"),  # of the arrival
        ("reserved", "<u4"),
        ("subscription", "<u8"),
        ("time_us", "<i8"),  # of what was last heard of the subscription
    ]
)

SIGHTINGS = np.dtype(
    [
        ("origin", "<i8"),
        ("subscription", "<u8"),
        ("publication", "<u8"),
        ("stay", "<i8"),
        ("time_us", "<i8"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("distance_m", "<f4"),
        ("dwell_ms", "<u4"),
        ("event_type", "u1"),
        ("reason", "u1"),
        ("reserved", "<u2"),
    ]
)
NO_DWELL = 0xFFFFFFFF

SPLITS = np.dtype([("place", "<u8"), ("parts", "<u4"), ("reserved", "<u4")])

_LENGTH = struct.Struct("<I")
_TIME = struct.Struct("<q")


Number = TypeVar("Number", int, NDArray[np.int64])


def mark_of(offset: int, segment: int) -> int:
    """A number for a row of a segment of a record, once the row's own is added; it grows."""
    return offset << 24 | min(segment, 255) << 16


def offset_of(mark: Number) -> Number:
    """The offset of the record that a mark was made for."""
    return mark >> 24


class Steps(NamedTuple):
    """Steps of entities, with the declarations of those that have one, and seeds by row."""

    rows: Rows
    declarations: list[bytes]
    seeds: Rows

    def after(self, last: int) -> Steps:
        """The steps that follow from later offsets than this."""
        new = self.rows["origin"] > last
        if new.all():
            return self
        kept = new[declares(self.rows)].tolist()
        declarations = [one for one, is_new in zip(self.declarations, kept, strict=True) if is_new]
        seeds = self.seeds[new[self.seeds["row"]]].copy()
        seeds["row"] = (np.cumsum(new) - 1)[seeds["row"]]
        return Steps(self.rows[new], declarations, seeds)

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """Several after one another; at least one."""
        if len(parts) == 1:
            return parts[0]
        seeds, before = [], 0
        for part in parts:
            if len(part.seeds):
                moved = part.seeds.copy()
                moved["row"] += before
                seeds.append(moved)
            before += len(part.rows)
        return cls(
            joined_rows([part.rows for part in parts], STEPS),
            [one for part in parts for one in part.declarations],
            joined_rows(seeds, SEEDS),
        )


def declares(rows: Rows) -> NDArray[np.bool_]:
    return np.asarray(_DECLARES[rows["step"]])


def joined_rows(parts: Sequence[Rows], kind: np.dtype[np.void]) -> Rows:
    """Rows of one kind after one another; NumPy would compare the kinds of each with all."""
    return np.frombuffer(b"".join(part.tobytes() for part in parts), kind)


def steps_frame(rows: Rows, declarations: Sequence[bytes], seeds: Rows | None = None) -> bytes:
    writer = FrameWriter().segment(b"S", rows.tobytes())
    writer.segment(b"L", b"".join(_LENGTH.pack(len(one)) + one for one in declarations))
    if seeds is not None:
        writer.segment(b"K", seeds.tobytes())
    return writer.to_bytes()


def read_steps(segments: Sequence[tuple[bytes, memoryview]]) -> Steps | None:
    """The steps of a frame, if it has some; raises PacketError where they do not fit together."""
    parts = dict(segments)
    if b"S" not in parts:
        return None
    rows = rows_of(parts[b"S"], STEPS)
    declarations = [bytes(one) for _, one in pieces(parts.get(b"L", memoryview(b"")), _LENGTH)]
    if len(declarations) != np.count_nonzero(declares(rows)):
        raise PacketError("malformed")
    seeds = rows_of(parts.get(b"K", b""), SEEDS)
    if len(seeds) and seeds["row"].max() >= len(rows):
        raise PacketError("malformed")
    return Steps(rows, declarations, seeds)


def time_frame(time_us: int) -> bytes:
    return FrameWriter().segment(b"T", _TIME.pack(time_us)).to_bytes()


def read_time(data: memoryview) -> int:
    """What such a segment says."""
    if len(data) != _TIME.size:
        raise PacketError("truncated")
    return int(_TIME.unpack(data)[0])
