"""Where a record on the bus was derived from, by which repeated records are recognised.

A worker that takes over from one that died repeats some of its work, and appends again what follows
from it. Each such record names the partition and offset it follows from; these grow, so a reader
that keeps the greatest of each partition drops what comes a second time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from mercury.wire.records import Headers, read_numbers

ORIGIN = "origin"

_ORIGIN = struct.Struct("<BIq")


class Origin(NamedTuple):
    """What a record follows from."""

    stage: int
    partition: int
    offset: int


def origin_header(origin: Origin) -> tuple[str, bytes]:
    return ORIGIN, _ORIGIN.pack(*origin)


def read_origin(headers: Headers) -> Origin | None:
    """What a record follows from; None where it was not derived."""
    numbers = read_numbers(headers, ORIGIN, _ORIGIN)
    return None if numbers is None else Origin(*numbers)


class SeenOrigins:
    """How far a reader has come with what follows from each partition, for each key."""

    def __init__(self, entries: Iterable[tuple[int, int, bytes, int]] = ()) -> None:
        self._last = {(stage, part, key): offset for stage, part, key, offset in entries}

    def is_new(self, headers: Headers, key: bytes) -> bool:
        """Whether a record is one that has not been seen; it has from now on."""
        origin = read_origin(headers)
        if origin is None:
            return True
        if origin.offset <= self.last(origin, key):
            return False
        self.note(origin, key)
        return True

    def last(self, origin: Origin, key: bytes) -> int:
        """The greatest offset seen that records of this key follow from."""
        return self._last.get((origin.stage, origin.partition, key), -1)

    def note(self, origin: Origin, key: bytes) -> None:
        self._last[origin.stage, origin.partition, key] = origin.offset

    def entries(self) -> list[tuple[int, int, bytes, int]]:
        """All that must be remembered."""
        return [(*place, offset) for place, offset in self._last.items()]
