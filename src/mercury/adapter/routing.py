"""Where on the bus a message of a client goes: topic, key and what travels beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mercury.geo import haversine_m
from mercury.model import topics
from mercury.model.errors import MessageError, PacketError
from mercury.model.message import EventKind, Priority
from mercury.session import Session, SessionTable
from mercury.wire import mercury_pb2 as pb
from mercury.wire.records import Headers, envelope_route, traffic_header

_TO_OTHERS = ("client", "group", "area")


class BusRoute(NamedTuple):
    """A place on the bus."""

    topic: str
    key: bytes
    headers: Headers


def bus_route(
    session: Session, envelope: pb.Envelope, table: SessionTable, traffic_radius_m: float
) -> BusRoute:
    """Where a message goes; raises PacketError for what clients may not send."""
    headers: Headers = (envelope_route(envelope), session.fix_header)
    if envelope.kind == pb.EVENT:
        return _event(session, envelope, headers, table, traffic_radius_m)
    if envelope.kind == pb.CONTENT:
        return BusRoute(_content_topic(envelope), session.key, headers)
    return BusRoute(topics.REQUESTS, session.key, headers)


def _content_topic(envelope: pb.Envelope) -> str:
    topic = _topic(topics.content_topic, envelope.topic)
    to = envelope.destination.WhichOneof("target")
    if to in _TO_OTHERS:
        if envelope.priority > Priority.WARNING:
            raise PacketError("priority")  # emergencies are told by brokers and offices
        return topics.alerts_topic(envelope.priority)
    if to == "everyone":
        raise PacketError("not-allowed")
    return topic


def _event(
    session: Session,
    envelope: pb.Envelope,
    headers: Headers,
    table: SessionTable,
    traffic_radius_m: float,
) -> BusRoute:
    event = envelope.event
    topic = _topic(topics.events_topic, event.kind)
    if event.HasField("position"):
        lat, lon = event.position.lat, event.position.lon
        if not (-90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0):
            raise PacketError("bad-coordinates")
    else:
        lat, lon, _heading, _speed = session.fix
    # Events of one place share a key, so that one consumer sees them all, in order. All
    # witnesses of an emergency must meet at one broker: there the places are large.
    digits = 2
    if event.kind == EventKind.EMERGENCY:
        digits = 0
        speed = traffic_speed(table, lat, lon, traffic_radius_m)
        if speed is not None:
            headers = (*headers, traffic_header(speed))
    return BusRoute(topic, f"{lat:.{digits}f},{lon:.{digits}f}".encode(), headers)


def traffic_speed(table: SessionTable, lat: float, lon: float, radius_m: float) -> float | None:
    """How fast those around a place are, in the mean."""
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
