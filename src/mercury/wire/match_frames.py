"""Frames of matching on the bus: declarations and moves in, events out.

A frame is a version byte and segments: type u8, length u32, bytes, little-endian. Segments hold in
their order. Most are rows of a fixed size, read and written as columns:

    D  declarations     Protocol Buffers `Declarations`
    M  moves            rows of MOVES
    W  withdrawals      rows of WITHDRAWALS
    P  publications     Protocol Buffers `Descriptions`: what the events after it are about
    E  events           rows of EVENTS
    R  refusals         Protocol Buffers `RefusedDeclarations`

Readers skip types that their version does not know. Entities are keys (`entity_key`).
On the topic `entities` a record holds entities of one bucket, and the bucket is its key: so all
updates of an entity stay in order, and many entities share a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Self, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import ArrayLike, NDArray

from mercury.model.errors import PacketError
from mercury.model.matching import NearSubscription, Publication
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import Refusal, declaration_to_pb, publication_to_pb

VERSION = 1
BUCKETS = 16
# A withdrawal that is older than the last word of its entity by more than this comes from who had
# the entity before. Not by less: words bear the time of when they were passed on.
WITHDRAWN_BEFORE_US = 1_000_000

MOVES = np.dtype(
    [
        ("key", "<u8"),
        ("time_us", "<i8"),
        ("lat_e7", "<i4"),
        ("lon_e7", "<i4"),
        ("accuracy_m", "<f4"),  # 0: not known
        ("sequence", "<u4"),  # the sender's own count
    ]
)
WITHDRAWALS = np.dtype([("key", "<u8"), ("time_us", "<i8")])
EVENT_COLUMNS = [
    ("time_us", "<i8"),
    ("lat_e7", "<i4"),
    ("lon_e7", "<i4"),
    ("distance_m", "<f4"),
    ("event_type", "u1"),
    ("reason", "u1"),
    ("reserved", "<u2"),
]
EVENTS = np.dtype([("subscription", "<u8"), ("publication", "<u8"), *EVENT_COLUMNS])

Rows = NDArray[np.void]

_SEGMENT = struct.Struct("<BI")
_E7 = 1e7
_Parsed = TypeVar("_Parsed", pb.Declarations, pb.Descriptions, pb.RefusedDeclarations)


class FrameWriter:
    """Builds a frame, segment after segment; empty ones are left out."""

    def __init__(self) -> None:
        self._parts: list[bytes] = [bytes((VERSION,))]
        self.size = 1

    def __len__(self) -> int:
        return len(self._parts) // 2

    def declare(self, declarations: Iterable[tuple[Publication | NearSubscription, int]]) -> Self:
        """Entities, each with the time of its declaration."""
        message = pb.Declarations()
        for what, time_us in declarations:
            declaration_to_pb(what, time_us, message.declaration.add())
        return self.segment(b"D", message.SerializeToString())

    def move(self, rows: Rows) -> Self:
        return self.segment(b"M", rows.astype(MOVES, copy=False).tobytes())

    def withdraw(self, rows: Rows) -> Self:
        return self.segment(b"W", rows.astype(WITHDRAWALS, copy=False).tobytes())

    def describe(self, publications: Mapping[int, Publication]) -> Self:
        message = pb.Descriptions()
        for key, publication in publications.items():
            description = message.description.add()
            description.key = key
            publication_to_pb(publication, description.publication)
        return self.segment(b"P", message.SerializeToString())

    def notify(self, rows: Rows) -> Self:
        return self.segment(b"E", rows.astype(EVENTS, copy=False).tobytes())

    tell = notify  # the name that the shared workers use

    def refuse(self, refusals: Iterable[Refusal]) -> Self:
        message = pb.RefusedDeclarations()
        for refusal in refusals:
            message.refused.add(key=refusal.key, reason=refusal.reason, sentence=refusal.sentence)
        return self.segment(b"R", message.SerializeToString())

    def segment(self, kind: bytes, data: bytes) -> Self:
        """Any segment, by its letter."""
        if data:
            self._parts += (_SEGMENT.pack(kind[0], len(data)), data)
            self.size += _SEGMENT.size + len(data)
        return self

    def to_bytes(self) -> bytes:
        return b"".join(self._parts)


def split_frame(data: bytes) -> list[tuple[bytes, memoryview]]:
    """Letters and bytes of the segments; raises PacketError with the reason to count it under."""
    if not data:
        raise PacketError("truncated")
    if data[0] != VERSION:
        raise PacketError("version")
    return [(bytes((kind,)), piece) for (kind,), piece in pieces(memoryview(data)[1:], _SEGMENT)]


def pieces(data: memoryview, header: struct.Struct) -> Iterator[tuple[list[int], memoryview]]:
    """Each piece and the other fields of its header; the last field is the length of the piece."""
    at = 0
    while at < len(data):
        if at + header.size > len(data):
            raise PacketError("truncated")
        *others, size = header.unpack_from(data, at)
        at += header.size
        if at + size > len(data):
            raise PacketError("truncated")
        yield others, data[at : at + size]
        at += size


def rows_of(data: memoryview | bytes, row: np.dtype[np.void]) -> Rows:
    if len(data) % row.itemsize:
        raise PacketError("truncated")
    return np.frombuffer(data, row)


def rows(kind: np.dtype[np.void], count: int, **columns: ArrayLike) -> Rows:
    """Rows out of columns; what is not given is 0."""
    made = np.zeros(count, kind)
    for name, column in columns.items():
        made[name] = column
    return made


def to_e7(degrees: ArrayLike) -> NDArray[np.int32]:
    """Degrees as they travel: whole numbers of about a centimetre."""
    return np.rint(np.asarray(degrees, np.float64) * _E7).astype(np.int32)


def from_e7(numbers: ArrayLike) -> NDArray[np.float64]:
    """Degrees out of what travelled."""
    # Divided, not multiplied by 1e-7: what was 1e-7 exact comes back as the same number.
    return np.asarray(numbers, np.int32) / _E7


def buckets_of(keys: ArrayLike) -> NDArray[np.int64]:
    # High bits: tables that hash keys use the low ones.
    return (np.asarray(keys, np.uint64) >> np.uint64(60)).astype(np.int64)


def by_bucket(table: Rows) -> dict[int, Rows]:
    """Rows, in their order, by the bucket of their key."""
    buckets = buckets_of(table["key"])
    order = np.argsort(buckets, kind="stable")
    found, starts = np.unique(buckets[order], return_index=True)
    return dict(zip(found.tolist(), np.split(table[order], starts)[1:], strict=True))


def bucket_key(bucket: int) -> bytes:
    return b"%02d" % bucket


def parse_segment(kind: type[_Parsed], data: memoryview) -> _Parsed:
    """A segment that is a message of Protocol Buffers."""
    try:
        return kind.FromString(bytes(data))
    except DecodeError:
        raise PacketError("malformed") from None
