"""The state of stages on the bus: appended in chunks, found again by who takes over."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mercury.bus import Bus, FromTime, Record, Start
from mercury.model import topics

CHUNK_BYTES = 512 * 1024
_HEADER = "state"
_LABEL = struct.Struct("<BIqII8s")  # stage, partition, offset, chunk, chunks, id
_LOOKBACKS_S = (60.0, 3600.0)  # then everything: the newest is mostly moments old
_BATCH = 64

Place = tuple[int, int]  # stage and partition


class Found(NamedTuple):
    """A state, and the offset of the last record that is in it."""

    offset: int
    data: bytes


def append_state(bus: Bus, place: Place, offset: int, data: bytes) -> int:
    """Append the state of a partition; how many bytes that took."""
    packed = zlib.compress(data, 1)
    chunks = max(1, -(-len(packed) // CHUNK_BYTES))
    name = os.urandom(8)
    key = b"%d-%d" % place
    for chunk in range(chunks):
        label = _LABEL.pack(*place, offset, chunk, chunks, name)
        part = packed[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
        bus.append(topics.MATCHER_STATES, part, key, ((_HEADER, label),))
    return len(packed)


async def find_states(
    bus: Bus, wanted: Iterable[Place], clock: Callable[[], int]
) -> dict[Place, Found]:
    """The newest whole state of each partition that has one."""
    places = set(wanted)
    starts: list[Start] = [FromTime(clock() - int(back * 1e6)) for back in _LOOKBACKS_S]
    for start in (*starts, "earliest"):
        found = await _read(bus, places, start)
        if len(found) == len(places):
            break
    return found


async def _read(bus: Bus, places: set[Place], start: Start) -> dict[Place, Found]:
    consumer = bus.subscribe((topics.MATCHER_STATES,), start=start)
    found: dict[Place, Found] = {}
    parts: dict[bytes, dict[int, bytes]] = {}
    try:
        while records := await consumer.read_now(_BATCH):
            for record in records:
                _take(record, places, parts, found)
    finally:
        consumer.close()
    return {place: Found(one.offset, zlib.decompress(one.data)) for place, one in found.items()}


def _take(
    record: Record,
    places: set[Place],
    parts: dict[bytes, dict[int, bytes]],
    found: dict[Place, Found],
) -> None:
    label = next((value for name, value in record.headers if name == _HEADER), b"")
    if len(label) != _LABEL.size:
        return
    stage, partition, offset, chunk, chunks, name = _LABEL.unpack(label)
    place = (stage, partition)
    if place not in places:
        return
    some = parts.setdefault(name, {})
    some[chunk] = record.value
    if len(some) == chunks:
        del parts[name]
        known = found.get(place)
        if known is None or offset > known.offset:
            found[place] = Found(offset, b"".join(some[number] for number in range(chunks)))
