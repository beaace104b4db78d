"""Where and how fast an event was sensed: by the event, else by its sender's position."""

from __future__ import annotations

import math

from mercury.model.errors import PacketError
from mercury.wire import mercury_pb2 as pb
from mercury.wire import parse
from mercury.wire.records import MAX_SPEED_MPS, POSITION, Fix, on_earth, read_fix, within


def read_sensed(position: bytes | None, value: bytes) -> tuple[pb.Envelope, Fix | None]:
    """An envelope that holds an event, and its position; raises PacketError for anything else."""
    envelope = parse(value)
    if envelope.WhichOneof("payload") != "event":
        raise PacketError("no-event")
    event = envelope.event
    fix = read_fix(((POSITION, position),)) if position else None
    if event.HasField("position"):
        _, _, *moving = fix or (0.0, 0.0, math.nan, math.nan)
        fix = Fix(event.position.lat, event.position.lon, *moving)
    if fix is None:
        return envelope, None
    if not on_earth(fix.lat, fix.lon):
        raise PacketError("bad-coordinates")
    if event.HasField("speed_mps"):
        fix = fix._replace(speed_mps=within(event.speed_mps, MAX_SPEED_MPS))
    return envelope, fix
