"""The state of stages on the bus: appended in chunks, found again by who takes over."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from mercury.bus import Bus, Consumer, FromTime, Record, Start
from mercury.model import topics

CHUNK_BYTES = 512 * 1024
_HEADER = "state"
_LABEL = struct.Struct("<BIqII8s")  # stage, partition, offset, chunk, chunks, id
_LOOKBACK_S = 600.0  # while one worker lives, every partition is saved more often
_READ_S = 2.0
_BATCH = 64
_OWNER = -1  # beside the chunks of a state: the key of its records

Place = tuple[int, int]  # stage and partition


class SavedState(NamedTuple):
    """A state, and the offset of the last record that is in it."""

    offset: int
    packed: bytes

    def data(self) -> bytes:
        return zlib.decompress(self.packed)


class StateLog:
    """Reads what all workers save, and keeps the newest of each partition.

    It follows the topic all the time: who takes over must not begin with opening a reader, which
    the members of a group would notice.
    """

    def __init__(self, bus: Bus, clock: Callable[[], int]) -> None:
        self._bus = bus
        self._clock = clock
        self._newest: dict[Place, SavedState] = {}
        self._parts: dict[bytes, dict[int, bytes]] = {}  # of states that are not whole yet
        self._consumer: Consumer | None = None

    async def open(self) -> None:
        """Learn what there is."""
        await self._follow(FromTime(self._clock() - int(_LOOKBACK_S * 1e6)))
        if not self._newest:  # nobody was there lately; perhaps before
            self.close()
            await self._follow("earliest")

    async def _follow(self, start: Start) -> None:
        self._consumer = self._bus.subscribe((topics.MATCHER_STATES,), start=start)
        await self.catch_up()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    async def keep_reading(self) -> None:
        """Read on, so that little is left to read when it matters."""
        while True:
            await asyncio.sleep(_READ_S)
            await self.catch_up()

    async def catch_up(self) -> None:
        """Read everything that is there now."""
        assert self._consumer is not None
        while records := await self._consumer.read_now(_BATCH):
            for record in records:
                self._take(record)

    def newest(self, place: Place) -> SavedState | None:
        """The newest state of a partition, as of the last time that we caught up."""
        return self._newest.get(place)

    def append(self, place: Place, offset: int, data: bytes) -> int:
        """Append the state of a partition; how many bytes that took."""
        packed = zlib.compress(data, 1)
        chunks = max(1, -(-len(packed) // CHUNK_BYTES))
        name = os.urandom(8)
        key = b"%d-%d" % place
        for chunk in range(chunks):
            label = _LABEL.pack(*place, offset, chunk, chunks, name)
            part = packed[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
            self._bus.append(topics.MATCHER_STATES, part, key, ((_HEADER, label),))
        return len(packed)

    def _take(self, record: Record) -> None:
        label = next((value for name, value in record.headers if name == _HEADER), b"")
        if len(label) != _LABEL.size:
            return
        stage, partition, offset, chunk, chunks, name = _LABEL.unpack(label)
        if chunk == 0 and chunks > 1:
            # Chunks of a state come in order; one whose writer died stays without its end.
            self._parts = {
                other: parts
                for other, parts in self._parts.items()
                if parts.get(_OWNER) != record.key
            }
        some = self._parts.setdefault(name, {_OWNER: record.key})
        some[chunk] = record.value
        if len(some) <= chunks:
            return
        del self._parts[name]
        known = self._newest.get((stage, partition))
        if known is None or offset > known.offset:
            packed = b"".join(some[number] for number in range(chunks))
            self._newest[stage, partition] = SavedState(offset, packed)
