"""Frames of what moves, read whole: every segment by what it says."""

from __future__ import annotations

from typing import NamedTuple

from mercury.model.errors import AreaError, MatchingError, PacketError
from mercury.model.matching import Publication
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import (
    KeyedDeclaration,
    Refusal,
    declaration_from_pb,
    publication_from_pb,
)
from mercury.wire.match_frames import (
    EVENTS,
    MOVES,
    WITHDRAWALS,
    Rows,
    parse_segment,
    rows_of,
    split_frame,
)


class Declared(NamedTuple):
    """Entities that are new or others than before."""

    declarations: list[KeyedDeclaration]


class Moved(NamedTuple):
    """Where entities are; rows of MOVES."""

    rows: Rows


class Withdrawn(NamedTuple):
    """Entities that are no more; rows of WITHDRAWALS."""

    rows: Rows


class Described(NamedTuple):
    """What publications are, by key."""

    publications: dict[int, Publication]


class Happened(NamedTuple):
    """What happened to pairs; rows of EVENTS."""

    rows: Rows


class Refused(NamedTuple):
    """Declarations that do not hold."""

    refusals: list[Refusal]


Segment = Declared | Moved | Withdrawn | Described | Happened | Refused


def read_frame(data: bytes) -> list[Segment]:
    """The segments of a frame; raises PacketError with the reason to count it under."""
    return [
        segment for kind, part in split_frame(data) if (segment := _read(kind, part)) is not None
    ]


def _read(kind: bytes, data: memoryview) -> Segment | None:
    try:
        match kind:
            case b"M":
                return Moved(rows_of(data, MOVES))
            case b"E":
                return Happened(rows_of(data, EVENTS))
            case b"W":
                return Withdrawn(rows_of(data, WITHDRAWALS))
            case b"D":
                declared = parse_segment(pb.Declarations, data)
                return Declared([declaration_from_pb(one) for one in declared.declaration])
            case b"P":
                described = parse_segment(pb.Descriptions, data).description
                return Described(
                    {one.key: publication_from_pb(one.publication) for one in described}
                )
            case b"R":
                refused = parse_segment(pb.RefusedDeclarations, data).refused
                return Refused([Refusal(one.key, one.reason, one.sentence) for one in refused])
    except (MatchingError, AreaError):
        raise PacketError("malformed") from None
    return None
