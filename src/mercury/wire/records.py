"""What travels beside an Envelope on the bus, so that readers need not decode what they skip."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from mercury.model.filter import INTEREST_BYTES
from mercury.model.message import Message, Telemetry
from mercury.wire import mercury_pb2 as pb
from mercury.wire.packet import MAX_PRIORITY

ROUTE = "route"  # kind, priority, expiry
POSITION = "position"  # lat, lon, heading, speed of the sender when it was sent
INTERESTS = "interests"  # ids of the interests that a content message matches
TRAFFIC = "traffic"  # mean speed around an event, in m/s

# What is beyond is no heading and no speed: it counts as unknown.
MAX_HEADING_DEG, MAX_SPEED_MPS = 360.0, 1000.0

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
    """Where a sender was; NaN means unknown."""

    lat: float
    lon: float
    heading_deg: float
    speed_mps: float


@lru_cache(1024)  # nearly all messages share a few routes
def route_header(kind: int, priority: int, expires_us: int) -> tuple[str, bytes]:
    return ROUTE, _ROUTE.pack(kind, priority, expires_us)


def message_route(message: Message) -> tuple[str, bytes]:
    return route_header(message.kind, message.priority, message.expires_us)


def envelope_route(envelope: pb.Envelope) -> tuple[str, bytes]:
    return route_header(envelope.kind, envelope.priority, envelope.expires_us)


def fix_header(lat: float, lon: float, heading_deg: float, speed_mps: float) -> tuple[str, bytes]:
    return POSITION, _POSITION.pack(lat, lon, heading_deg, speed_mps)


def telemetry_fix(telemetry: Telemetry) -> tuple[str, bytes]:
    heading, speed = telemetry.heading_deg, telemetry.speed_mps
    return fix_header(
        telemetry.position.lat,
        telemetry.position.lon,
        math.nan if heading is None else heading,
        math.nan if speed is None else speed,
    )


def interests_header(interests: Iterable[bytes]) -> tuple[str, bytes]:
    return INTERESTS, b"".join(interests)


def traffic_header(speed_mps: float) -> tuple[str, bytes]:
    return TRAFFIC, _REAL.pack(speed_mps)


@lru_cache(1024)
def read_route(headers: Headers) -> Route | None:
    """The route of a record; None where it has none or a broken one."""
    fields = read_numbers(headers, ROUTE, _ROUTE)
    return Route(*fields) if fields is not None and fields[1] <= MAX_PRIORITY else None


def read_fix(headers: Headers) -> Fix | None:
    """The sender's place; None where it is not known."""
    numbers = read_numbers(headers, POSITION, _POSITION)
    if numbers is None or math.isnan(numbers[0]) or math.isnan(numbers[1]):
        return None
    lat, lon, heading, speed = numbers
    return Fix(lat, lon, within(heading, MAX_HEADING_DEG), within(speed, MAX_SPEED_MPS))


def on_earth(lat: float, lon: float) -> bool:
    return abs(lat) <= 90.0 and abs(lon) <= 180.0  # false of NaN


def within(value: float, limit: float) -> float:
    """The value, or NaN if it is farther from 0 than the limit."""
    return value if abs(value) <= limit else math.nan


def read_interests(headers: Headers) -> list[bytes]:
    data = _find(headers, INTERESTS) or b""
    return [data[i : i + INTEREST_BYTES] for i in range(0, len(data), INTEREST_BYTES)]


def read_traffic(headers: Headers) -> float | None:
    numbers = read_numbers(headers, TRAFFIC, _REAL)
    return None if numbers is None else numbers[0]


def read_numbers(headers: Headers, name: str, form: struct.Struct) -> tuple[Any, ...] | None:
    """What a header of this form holds; None where there is none or a broken one."""
    data = _find(headers, name)
    return form.unpack(data) if data is not None and len(data) == form.size else None


def _find(headers: Headers, name: str) -> bytes | None:
    for key, value in headers:
        if key == name:
            return value
    return None
