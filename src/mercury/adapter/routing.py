"""Where on the bus a client's message goes: its topic, key and headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mercury.geo import bounding_circle, haversine_m
from mercury.model import topics
from mercury.model.errors import AreaError, MessageError, PacketError
from mercury.model.message import EventKind, Priority
from mercury.session import Session, SessionTable
from mercury.wire import mercury_pb2 as pb
from mercury.wire.fields import area_from_pb
from mercury.wire.records import Headers, envelope_route, traffic_header

_TO_OTHERS = ("client", "group", "area")


class BusRecord(NamedTuple):
    """What is to be appended to a topic of the bus."""

    topic: str
    value: bytes
    key: bytes = b""
    headers: Headers = ()


def bus_record(
    session: Session,
    envelope: pb.Envelope,
    body: bytes,
    table: SessionTable,
    traffic_radius_m: float,
    max_area_m: float,
) -> BusRecord:
    """A client's message for the bus; raises PacketError for what clients may not send."""
    headers: Headers = (envelope_route(envelope), session.fix_header)
    if envelope.kind == pb.EVENT:
        topic, key, more = _event(session, envelope, table, traffic_radius_m)
        return BusRecord(topic, body, key, headers + more)
    topic = _content_topic(envelope, max_area_m) if envelope.kind == pb.CONTENT else topics.REQUESTS
    return BusRecord(topic, body, session.key, headers)


def _content_topic(envelope: pb.Envelope, max_area_m: float) -> str:
    topic = _topic(topics.content_topic, envelope.topic)
    to = envelope.destination.WhichOneof("target")
    if to in _TO_OTHERS:
        if envelope.priority > Priority.WARNING:
            raise PacketError("priority")  # emergencies are for brokers and services
        if to == "area":
            _check_area(envelope.destination.area, max_area_m)
        return topics.alerts_topic(envelope.priority)
    if to == "everyone":
        raise PacketError("not-allowed")
    return topic


def _check_area(area: pb.Area, max_area_m: float) -> None:
    try:
        around = bounding_circle(area_from_pb(area).shape)
    except AreaError:
        raise PacketError("malformed") from None
    if around.radius_m > max_area_m:
        raise PacketError("area-too-large")


def _event(
    session: Session, envelope: pb.Envelope, table: SessionTable, traffic_radius_m: float
) -> tuple[str, bytes, Headers]:
    event = envelope.event
    topic = _topic(topics.events_topic, event.kind)
    if event.HasField("position"):
        lat, lon = event.position.lat, event.position.lon
        if not (-90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0):
            raise PacketError("bad-coordinates")
    else:
        lat, lon, _heading, _speed = session.fix
    # Nearby events share a key, so that one consumer sees them all, in order. All witnesses of
    # an emergency must meet at one broker: there the cells are large.
    if event.kind != EventKind.EMERGENCY:
        return topic, f"{lat:.2f},{lon:.2f}".encode(), ()
    speed = traffic_speed(table, lat, lon, traffic_radius_m)
    headers = () if speed is None else (traffic_header(speed),)
    return topic, f"{lat:.0f},{lon:.0f}".encode(), headers


def traffic_speed(table: SessionTable, lat: float, lon: float, radius_m: float) -> float | None:
    near = np.flatnonzero(table.active & (np.abs(table.lat - lat) < radius_m / 110_000.0))
    near = near[haversine_m(lat, lon, table.lat[near], table.lon[near]) <= radius_m]
    speeds = table.speed[near]
    speeds = speeds[~np.isnan(speeds)]
    return float(speeds.mean()) if len(speeds) else None


def _topic(of: Callable[[str], str], name: str) -> str:
    try:
        return of(name)
    except MessageError:
        raise PacketError("bad-topic") from None
