"""The codec: nothing is lost on the way, and what makes no sense has a reason."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire.strategies import messages

from mercury.model.area import Area, Circle, Position
from mercury.model.errors import MessageError, MessageTooLargeError, PacketError
from mercury.model.message import (
    Address,
    Attributes,
    Event,
    Kind,
    Message,
    Subscription,
    Telemetry,
)
from mercury.wire import MAX_BODY_BYTES, NO_TOKEN, decode, encode, pack, parse
from mercury.wire import mercury_pb2 as pb

CAR, BROKER = Address.client("car-1"), Address.broker()
PLAIN = Message(kind=Kind.CONTENT, source=CAR, destination=BROKER, topic="fuel")


def reason_of(data: bytes) -> str:
    with pytest.raises(PacketError) as caught:
        decode(data)
    return caught.value.reason


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def varint(number: int) -> bytes:
    result = b""
    while number > 0x7F:
        result += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return result + bytes((number,))


@given(messages)
@example(replace(PLAIN, payload=Attributes()))
@example(replace(PLAIN, payload=Attributes({}, Position(0.0, 0.0))))
@example(replace(PLAIN, payload=Event("", Position(0.0, 0.0), 0.0, 0.0)))
@example(replace(PLAIN, payload=Telemetry(Position(0.0, 0.0), 0.0, 0.0, 0.0, 0.0)))
@example(replace(PLAIN, payload=Subscription(b"", "", near_m=0.0)))
@example(replace(PLAIN, destination=Address.to_area(Area(Circle(Position(0.0, 0.0), 1.0)))))
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", b"1", False, 0, 0.0, "", b""])
def test_a_value_keeps_its_type(value: object) -> None:
    message = replace(PLAIN, payload=Attributes({"x": value}))  # type: ignore[dict-item]
    back = decode(encode(message)).values["x"]
    assert type(back) is type(value)
    assert back == value


def test_a_value_may_be_nan() -> None:
    back = decode(encode(replace(PLAIN, payload=Attributes({"x": math.nan})))).values["x"]
    assert isinstance(back, float)
    assert math.isnan(back)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, None, [1], {"a": 1}, 1 + 2j])
def test_a_value_that_cannot_travel_is_refused(value: object) -> None:
    message = replace(PLAIN, payload=Attributes({"x": value}))  # type: ignore[dict-item]
    with pytest.raises(MessageError, match="the value of 'x'"):
        encode(message)


def test_a_value_of_a_type_of_a_newer_version_is_left_out() -> None:
    unknown_type = tag(9, 0) + b"\x01"
    entry = tag(1, 2) + b"\x01x" + tag(2, 2) + varint(len(unknown_type)) + unknown_type
    attributes = tag(1, 2) + varint(len(entry)) + entry
    data = encode(PLAIN) + tag(22, 2) + varint(len(attributes)) + attributes
    assert decode(data).values == {}


@given(
    messages,
    st.dictionaries(st.integers(100, 5000), st.binary(max_size=50), min_size=1, max_size=4),
)
def test_fields_of_a_newer_version_are_kept(message: Message, extra: dict[int, bytes]) -> None:
    unknown = b"".join(
        tag(number, 2) + varint(len(data)) + data for number, data in sorted(extra.items())
    )
    received = decode(encode(message) + unknown)
    assert replace(received, unknown=b"") == message
    passed_on = encode(replace(received, topic="changed"))
    assert unknown in passed_on
    assert decode(passed_on).unknown == received.unknown
    assert decode(passed_on).topic == "changed"


def test_a_payload_of_a_newer_version_is_kept() -> None:
    payload = tag(40, 2) + b"\x03abc"
    received = decode(encode(PLAIN) + payload)
    assert received.payload is None
    assert encode(received).endswith(payload)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_not_read(version: int) -> None:
    envelope = parse(encode(PLAIN))
    envelope.version = version
    assert reason_of(envelope.SerializeToString()) == "version"


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"\x12\x7fshort"])
def test_what_is_no_envelope_is_not_read(data: bytes) -> None:
    assert reason_of(data) in ("malformed", "version")


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        (math.nan, 0.0),
        (0.0, math.nan),
        (math.inf, 0.0),
        (90.001, 0.0),
        (-90.001, 0.0),
        (0.0, 180.001),
        (0.0, -math.inf),
    ],
)
@pytest.mark.parametrize("fix", ["telemetry", "event", "attributes", "circle", "polygon"])
def test_a_place_that_is_not_on_earth_is_bad_coordinates(fix: str, lat: float, lon: float) -> None:
    envelope = parse(encode(PLAIN))
    area = envelope.destination.area
    match fix:
        case "telemetry":
            envelope.telemetry.lat, envelope.telemetry.lon = lat, lon
        case "event":
            envelope.event.position.lat, envelope.event.position.lon = lat, lon
        case "attributes":
            envelope.attributes.position.lat, envelope.attributes.position.lon = lat, lon
        case "circle":
            area.circle.radius_m = 5.0
            area.circle.center.lat, area.circle.center.lon = lat, lon
        case "polygon":
            area.polygon.exterior.latlon.extend([0, 0, 0, 1, 1, 1, lat, lon])
    if fix not in ("circle", "polygon"):
        envelope.destination.broker = "any"
    assert reason_of(envelope.SerializeToString()) == "bad-coordinates"


def test_areas_that_cannot_exist_are_bad_coordinates() -> None:
    for change in (
        lambda area: area.SetInParent(),
        lambda area: setattr(area.circle, "radius_m", -1.0),
        lambda area: setattr(area.circle, "radius_m", math.nan),
        lambda area: area.polygon.exterior.latlon.extend([0, 0, 1, 1, 2]),
        lambda area: area.polygon.exterior.latlon.extend([0, 0, 1, 1]),
        lambda area: area.corridor.line.latlon.extend([0, 0]),
        lambda area: setattr(area.ellipse, "semi_major_m", math.inf),
        lambda area: setattr(area.rectangle, "south", 91.0),
    ):
        envelope = parse(encode(PLAIN))
        change(envelope.destination.area)
        assert reason_of(envelope.SerializeToString()) == "bad-coordinates"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda envelope: envelope.ClearField("source"), "no-address"),
        (lambda envelope: envelope.ClearField("destination"), "no-address"),
        (lambda envelope: setattr(envelope, "id", b"short"), "malformed"),
        (lambda envelope: setattr(envelope, "priority", 10), "malformed"),
        (lambda envelope: setattr(envelope, "priority", 300), "malformed"),
        (lambda envelope: setattr(envelope.source, "client", ""), "malformed"),
        (lambda envelope: setattr(envelope, "kind", 0), "unknown-kind"),
        (lambda envelope: setattr(envelope, "kind", 99), "unknown-kind"),
        (lambda envelope: setattr(envelope, "kind", -1), "unknown-kind"),
        (lambda envelope: setattr(envelope, "policy", 7), "unknown-kind"),
    ],
)
def test_what_makes_no_sense_has_a_reason(change: object, reason: str) -> None:
    envelope = parse(encode(PLAIN))
    change(envelope)  # type: ignore[operator]
    assert reason_of(envelope.SerializeToString()) == reason


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("priority", 10, "malformed"),
        ("priority", 2**31, "malformed"),
        ("kind", 300, "unknown-kind"),
    ],
)
def test_who_only_parses_is_safe_from_numbers_out_of_range_too(
    field: str, value: int, reason: str
) -> None:
    envelope = pb.Envelope.FromString(encode(PLAIN))
    setattr(envelope, field, value)
    with pytest.raises(PacketError) as caught:
        parse(envelope.SerializeToString())
    assert caught.value.reason == reason


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    try:
        decode(data)
    except PacketError as error:
        assert error.reason


@given(messages, st.data())
def test_a_damaged_message_never_raises_anything_else(
    message: Message, data: st.DataObject
) -> None:
    encoded = bytearray(encode(message))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(encoded))
    except PacketError as error:
        assert error.reason


def test_what_does_not_fit_in_one_packet_is_refused() -> None:
    empty = len(encode(replace(PLAIN, payload=Attributes({"x": b"x" * 65_000})))) - 65_000
    fits = replace(PLAIN, payload=Attributes({"x": b"x" * (MAX_BODY_BYTES - empty)}))
    assert len(pack(Kind.CONTENT, 3, NO_TOKEN, 1, encode(fits))) == 65_507
    too_large = replace(PLAIN, payload=Attributes({"x": b"x" * (MAX_BODY_BYTES - empty + 1)}))
    with pytest.raises(MessageTooLargeError, match="65476 bytes encoded.* at most 65475") as caught:
        pack(Kind.CONTENT, 3, NO_TOKEN, 1, encode(too_large))
    assert (caught.value.size, caught.value.limit) == (MAX_BODY_BYTES + 1, MAX_BODY_BYTES)
