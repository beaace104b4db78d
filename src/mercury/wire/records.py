"""What travels beside an Envelope on the bus, so that readers need not decode what they skip."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from mercury.model.interest import INTEREST_BYTES
from mercury.model.message import Message, Telemetry
from mercury.wire import mercury_pb2 as pb
from mercury.wire.packet import MAX_PRIORITY

ROUTE = "route"  # kind, priority, expiry
POSITION = "position"  # lat, lon, heading, speed of the sender when it was sent
INTERESTS = "interests"  # ids of the interests that a content message matches
TRAFFIC = "traffic"  # mean speed around an event, in m/s

_ROUTE = struct.Struct(">BBQ")
_POSITION = struct.Struct(">4d")
_REAL = struct.Struct(">d")

Headers = tuple[tuple[str, bytes], ...]


class Route(NamedTuple):
    """The fields of a message that decide how it is passed on."""

    kind: int
    priority: int
    expires_us: int


class Fix(NamedTuple):
    """Where a sender was; NaN stands for unknown."""

    lat: float
    lon: float
    heading_deg: float
    speed_mps: float


@lru_cache(1024)  # nearly all messages share a few routes
def route_header(kind: int, priority: int, expires_us: int) -> tuple[str, bytes]:
    """Return the header that says how to pass a record on."""
    return ROUTE, _ROUTE.pack(kind, priority, expires_us)


def message_route(message: Message) -> tuple[str, bytes]:
    """Return the route header of a message."""
    return route_header(message.kind, message.priority, message.expires_us)


def envelope_route(envelope: pb.Envelope) -> tuple[str, bytes]:
    """Return the route header of an Envelope."""
    return route_header(envelope.kind, envelope.priority, envelope.expires_us)


def fix_header(lat: float, lon: float, heading_deg: float, speed_mps: float) -> tuple[str, bytes]:
    """Return the header that says where the sender was."""
    return POSITION, _POSITION.pack(lat, lon, heading_deg, speed_mps)


def telemetry_fix(telemetry: Telemetry) -> tuple[str, bytes]:
    """Return the position header of a telemetry."""
    heading, speed = telemetry.heading_deg, telemetry.speed_mps
    return fix_header(
        telemetry.position.lat,
        telemetry.position.lon,
        math.nan if heading is None else heading,
        math.nan if speed is None else speed,
    )


def interests_header(interests: Iterable[bytes]) -> tuple[str, bytes]:
    """Return the header that names the interests a content message matches."""
    return INTERESTS, b"".join(interests)


def traffic_header(speed_mps: float) -> tuple[str, bytes]:
    """Return the header that says how fast traffic is around an event."""
    return TRAFFIC, _REAL.pack(speed_mps)


@lru_cache(1024)
def read_route(headers: Headers) -> Route | None:
    """The route of a record; None where it has none or a broken one."""
    data = _find(headers, ROUTE)
    if not data or len(data) != _ROUTE.size:
        return None
    route = Route(*_ROUTE.unpack(data))
    return route if route.priority <= MAX_PRIORITY else None


def read_fix(headers: Headers) -> Fix | None:
    """The sender's place; None where it is not known."""
    data = _find(headers, POSITION)
    if not data or len(data) != _POSITION.size:
        return None
    fix = Fix(*_POSITION.unpack(data))
    return None if math.isnan(fix.lat) or math.isnan(fix.lon) else fix


def read_interests(headers: Headers) -> list[bytes]:
    """The interests that a content message matches."""
    data = _find(headers, INTERESTS) or b""
    return [data[i : i + INTEREST_BYTES] for i in range(0, len(data), INTEREST_BYTES)]


def read_traffic(headers: Headers) -> float | None:
    """How fast traffic is around an event."""
    data = _find(headers, TRAFFIC)
    return _REAL.unpack(data)[0] if data and len(data) == _REAL.size else None


def _find(headers: Headers, name: str) -> bytes | None:
    for key, value in headers:
        if key == name:
            return value
    return None
