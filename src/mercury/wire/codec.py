"""Between the model's Message and the bytes of an Envelope."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from mercury.model.declarations import Declaration, Matches, NearQuery, Withdrawal
from mercury.model.delivery import Deliveries
from mercury.model.errors import AreaError, MessageError, PacketError
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
    Payload,
    Subscription,
    Telemetry,
)
from mercury.wire import mercury_pb2 as pb
from mercury.wire.areas import area_from_pb, area_to_pb
from mercury.wire.deliveries import deliveries_from_pb, deliveries_to_pb
from mercury.wire.mapped import POSITION, Mapped
from mercury.wire.matches import matches_from_pb, matches_to_pb, request_from_pb, request_to_pb
from mercury.wire.packet import MAX_PRIORITY

_SIMPLE_ADDRESSES = frozenset({"client", "service", "broker", "adapter", "group"})
_KNOWN_KINDS = frozenset(int(kind) for kind in Kind)
_MAPPED: dict[str, Mapped[Any]] = {
    "event": Mapped(Event, pb.Event),
    "attributes": Mapped(Attributes, pb.Attributes),
    "subscription": Mapped(Subscription, pb.Subscription),
    "grant": Mapped(Grant, pb.Grant),
}


def encode(message: Message) -> bytes:
    """Return the Envelope's bytes."""
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
    # Whoever passes bytes on relies on these two: they pick queues and fit in one byte each.
    if envelope.kind != kind:
        if envelope.kind not in _KNOWN_KINDS:
            raise PacketError("unknown-kind")
        if kind is not None:
            raise PacketError("malformed")
    if envelope.priority > MAX_PRIORITY or len(envelope.id) != 16:
        raise PacketError("malformed")
    return envelope


def to_envelope(message: Message) -> pb.Envelope:
    """Return the Envelope of a message."""
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
    _set_payload(envelope, message.payload)
    return envelope


def from_envelope(envelope: pb.Envelope) -> Message:
    """Return the Message of an Envelope; raises PacketError where it makes no sense."""
    correlation = envelope.correlation
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
            payload=_payload(envelope),
            unknown=_unknown_fields(envelope),
        )
    except AreaError:
        raise PacketError("bad-coordinates") from None
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
    which = address.WhichOneof("target")
    if which == "area":
        return Address.to_area(area_from_pb(address.area))
    if which == "everyone":
        return Address.everyone()
    if which in _SIMPLE_ADDRESSES:
        return Address(AddressKind(which), getattr(address, which))
    raise PacketError("no-address")


def _set_payload(envelope: pb.Envelope, payload: Payload) -> None:
    match payload:
        case Telemetry():
            telemetry_to_pb(payload, envelope.telemetry)
        case Event() | Attributes() | Subscription() | Grant():
            name = type(payload).__name__.lower()
            _MAPPED[name].write(payload, getattr(envelope, name))
        case Deliveries():
            deliveries_to_pb(payload, envelope.deliveries)
        case Declaration() | Withdrawal() | NearQuery():
            request_to_pb(payload, envelope)
        case Matches():
            matches_to_pb(payload, envelope.matches)


def _payload(envelope: pb.Envelope) -> Payload:
    match envelope.WhichOneof("payload"):
        case "telemetry":
            return telemetry_from_pb(envelope.telemetry)
        case "event" | "attributes" | "subscription" | "grant" as name:
            payload: Payload = _MAPPED[name].read(getattr(envelope, name))
            return payload
        case "deliveries":
            return deliveries_from_pb(envelope.deliveries)
        case "declaration" | "withdrawal" | "query":
            return request_from_pb(envelope)
        case "matches":
            return matches_from_pb(envelope.matches)
    return None


def telemetry_to_pb(telemetry: Telemetry, target: pb.Telemetry) -> None:
    """Write telemetry into a Protocol Buffers message."""
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


def telemetry_from_pb(source: pb.Telemetry) -> Telemetry:
    """Read telemetry; raises AreaError for a position that is not on Earth."""
    return Telemetry(
        position=POSITION.read(source),
        heading_deg=source.heading_deg if source.HasField("heading_deg") else None,
        speed_mps=source.speed_mps if source.HasField("speed_mps") else None,
        accuracy_m=source.accuracy_m if source.HasField("accuracy_m") else None,
        altitude_m=source.altitude_m if source.HasField("altitude_m") else None,
        time_us=source.time_us,
    )


def _unknown_fields(envelope: pb.Envelope) -> bytes:
    if not len(UnknownFieldSet(envelope)):
        return b""
    rest = pb.Envelope()
    rest.CopyFrom(envelope)
    for field in pb.Envelope.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializeToString()
