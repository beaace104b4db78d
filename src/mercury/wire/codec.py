"""Between the model's Message and the bytes of an Envelope."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from mercury.model.area import Position
from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.errors import AreaError, FilterError, MatchingError, MessageError, PacketError
from mercury.model.message import (
    VERSION,
    Address,
    AddressKind,
    Attributes,
    DeliveryPolicy,
    Event,
    Grant,
    Kind,
    Message,
    Subscription,
    Telemetry,
)
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import MOVING_PAYLOADS
from mercury.wire.fields import PayloadFields, area_from_pb, area_to_pb, mapped
from mercury.wire.packet import KNOWN_KINDS, MAX_PRIORITY

_TELEMETRY_OPTIONAL = ("heading_deg", "speed_mps", "accuracy_m", "altitude_m")
_DELIVERY_FIELDS = ("source", "topic", "kind", "priority", "policy", "sent_us", "expires_us")
# Columns of numbers, which follow on the client, its state and the reason.
_DELIVERY_NUMBERS = ("tries", "addressed_us", "first_sent_us", "settled_us", "acks", "acks_again")


def encode(message: Message) -> bytes:
    return to_envelope(message).SerializeToString()


def decode(data: bytes) -> Message:
    """Read an Envelope; raises PacketError with the reason to count it under."""
    return from_envelope(parse(data))


def parse(data: bytes, kind: int | None = None) -> pb.Envelope:
    """Parse without building a Message: for paths that read a few fields and pass the bytes on.

    With the kind that the packet's header gives, the body must say the same.
    """
    try:
        envelope = pb.Envelope.FromString(data)
    except DecodeError:
        raise PacketError("malformed") from None
    if envelope.version != VERSION:
        raise PacketError("version")
    # Code that passes bytes on relies on these two: they select queues and fit in one byte each.
    if envelope.kind != kind:
        if envelope.kind not in KNOWN_KINDS:
            raise PacketError("unknown-kind")
        if kind is not None:
            raise PacketError("malformed")
    if envelope.priority > MAX_PRIORITY or len(envelope.id) != 16:
        raise PacketError("malformed")
    return envelope


def to_envelope(message: Message) -> pb.Envelope:
    # The fields of a newer version come first, so that what we know and changed wins.
    envelope = pb.Envelope.FromString(message.unknown) if message.unknown else pb.Envelope()
    envelope.version = message.version
    envelope.id = message.id.bytes
    envelope.kind = cast("pb.Kind", int(message.kind))
    _set_address(envelope.source, message.source)
    _set_address(envelope.destination, message.destination)
    envelope.priority = message.priority
    envelope.sent_us = message.sent_us
    if message.session:
        envelope.session = message.session
    if message.topic:
        envelope.topic = message.topic
    if message.expires_us:
        envelope.expires_us = message.expires_us
    if message.correlation is not None:
        envelope.correlation = message.correlation.bytes
    if message.policy:
        envelope.policy = cast("pb.DeliveryPolicy", int(message.policy))
    if message.sequence:
        envelope.sequence = message.sequence
    if message.ordered:
        envelope.ordered = True
    if message.auth:
        envelope.auth = message.auth
    if message.payload is not None:
        name, write = _WRITERS[type(message.payload)]
        write(message.payload, getattr(envelope, name))
    return envelope


def from_envelope(envelope: pb.Envelope) -> Message:
    """Return the Message of an Envelope; raises PacketError where it makes no sense."""
    correlation = envelope.correlation
    payload = envelope.WhichOneof("payload")
    if len(envelope.id) != 16 or len(correlation) not in (0, 16):
        raise PacketError("malformed")
    try:
        return Message(
            version=envelope.version,
            id=UUID(bytes=envelope.id),
            session=envelope.session,
            kind=Kind(envelope.kind),
            source=_address(envelope.source),
            destination=_address(envelope.destination),
            topic=envelope.topic,
            priority=envelope.priority,
            sent_us=envelope.sent_us,
            expires_us=envelope.expires_us,
            correlation=UUID(bytes=correlation) if correlation else None,
            policy=DeliveryPolicy(envelope.policy),
            sequence=envelope.sequence,
            ordered=envelope.ordered,
            auth=envelope.auth,
            payload=None if payload is None else _READERS[payload](getattr(envelope, payload)),
            unknown=_unknown_fields(envelope),
        )
    except AreaError:
        raise PacketError("bad-coordinates") from None
    except (MatchingError, FilterError):
        raise PacketError("bad-declaration") from None
    except MessageError:
        raise PacketError("malformed") from None
    except ValueError:  # an enum's number that this version does not know
        raise PacketError("unknown-kind") from None


def _set_address(target: pb.Address, address: Address) -> None:
    if address.kind is AddressKind.AREA:
        assert address.area is not None
        area_to_pb(address.area, target.area)
    elif address.kind is AddressKind.EVERYONE:
        target.everyone = True
    else:
        setattr(target, address.kind.value, address.name)


def _address(address: pb.Address) -> Address:
    match address.WhichOneof("target"):
        case None:
            raise PacketError("no-address")
        case "area":
            return Address.to_area(area_from_pb(address.area))
        case "everyone":
            return Address.everyone()
        case which:
            return Address(AddressKind(which), getattr(address, which))


def _telemetry_to_pb(telemetry: Telemetry, target: pb.Telemetry) -> None:
    target.lat = telemetry.position.lat
    target.lon = telemetry.position.lon
    if telemetry.heading_deg is not None:
        target.heading_deg = telemetry.heading_deg
    if telemetry.speed_mps is not None:
        target.speed_mps = telemetry.speed_mps
    if telemetry.accuracy_m is not None:
        target.accuracy_m = telemetry.accuracy_m
    if telemetry.altitude_m is not None:
        target.altitude_m = telemetry.altitude_m
    target.time_us = telemetry.time_us


def _telemetry_from_pb(source: pb.Telemetry) -> Telemetry:
    """Read telemetry; raises AreaError for a position that is not on Earth."""
    given = {name: getattr(source, name) for name in _TELEMETRY_OPTIONAL if source.HasField(name)}
    return Telemetry(Position(source.lat, source.lon), time_us=source.time_us, **given)


def deliveries_to_pb(deliveries: Deliveries, target: pb.Deliveries) -> None:
    target.message = deliveries.message.bytes
    for name in _DELIVERY_FIELDS:
        setattr(target, name, getattr(deliveries, name))
    different = dict.fromkeys(row.reason for row in deliveries.rows)
    reasons = {reason: number for number, reason in enumerate(different)}
    target.reasons.extend(reasons)
    target.reason.extend(reasons[row.reason] for row in deliveries.rows)
    for name in ("client", "state", *_DELIVERY_NUMBERS):
        getattr(target, name).extend(getattr(row, name) for row in deliveries.rows)


def deliveries_from_pb(source: pb.Deliveries) -> Deliveries:
    """Read deliveries; raises PacketError where the columns do not fit together."""
    try:
        message = UUID(bytes=source.message)
        numbers = (getattr(source, name) for name in _DELIVERY_NUMBERS)
        columns = zip(source.client, source.state, source.reason, *numbers, strict=True)
        rows = tuple(
            Delivery(client, DeliveryState(state), source.reasons[reason], *rest)
            for client, state, reason, *rest in columns
        )
    except (ValueError, IndexError):
        raise PacketError("malformed") from None
    fields = {name: getattr(source, name) for name in _DELIVERY_FIELDS}
    return Deliveries(message=message, rows=rows, **fields)


_PAYLOADS: PayloadFields = {
    "telemetry": (Telemetry, _telemetry_to_pb, _telemetry_from_pb),
    "event": (Event, *mapped(Event, pb.Event)),
    "attributes": (Attributes, *mapped(Attributes, pb.Attributes)),
    "subscription": (Subscription, *mapped(Subscription, pb.Subscription)),
    "grant": (Grant, *mapped(Grant, pb.Grant)),
    "deliveries": (Deliveries, deliveries_to_pb, deliveries_from_pb),
    **MOVING_PAYLOADS,
}
_WRITERS = {model: (name, write) for name, (model, write, _) in _PAYLOADS.items()}
_READERS = {name: read for name, (_, _, read) in _PAYLOADS.items()}


def _unknown_fields(envelope: pb.Envelope) -> bytes:
    if not len(UnknownFieldSet(envelope)):
        return b""
    rest = pb.Envelope()
    rest.CopyFrom(envelope)
    for field in pb.Envelope.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializeToString()
