"""The message: what it refuses, when it expires, how an address reads."""

from __future__ import annotations

import time
import uuid

import pytest

from mercury.model.area import Area, Circle, Position
from mercury.model.errors import MessageError
from mercury.model.message import (
    Address,
    AddressKind,
    Attributes,
    Event,
    Kind,
    Message,
    Payload,
    Priority,
    Telemetry,
)

AREA = Area(Circle(Position(40.0, -111.0), 500.0))


def message(payload: Payload = None, **fields: object) -> Message:
    fields = {"kind": Kind.ALERT, "source": Address.broker(), **fields}
    return Message(destination=Address.everyone(), payload=payload, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("priority", [0, 4, 9, Priority.EMERGENCY])
def test_priorities_run_from_0_to_9(priority: int) -> None:
    assert message(priority=priority).priority == priority


@pytest.mark.parametrize("priority", [-1, 10, 255])
def test_other_priorities_are_refused(priority: int) -> None:
    with pytest.raises(MessageError, match=f"priority {priority} is not between 0 and 9"):
        message(priority=priority)


@pytest.mark.parametrize("id", [b"", bytes(16), "01a1e25d-7bd0-7107-a77b-b72066548c43", 7])
def test_an_id_is_a_uuid(id: object) -> None:
    with pytest.raises(MessageError, match="a message's id is a UUID, not"):
        message(id=id)


def test_each_message_has_its_own_id_and_time() -> None:
    before = time.time_ns() // 1000
    one, other = message(), message()
    assert one.id != other.id
    assert one.id.version == 7
    assert uuid.UUID(str(one.id)) == one.id  # what is printed can be pasted
    assert before <= one.sent_us <= other.sent_us <= time.time_ns() // 1000


@pytest.mark.parametrize(
    ("expires_us", "now_us", "expired"),
    [(0, 10**18, False), (100, 99, False), (100, 100, True), (100, 101, True)],
)
def test_expiry_is_the_first_instant_at_which_it_is_too_late(
    expires_us: int, now_us: int, expired: bool
) -> None:
    assert message(expires_us=expires_us).expired(now_us) is expired


def test_values_and_event_are_found_in_the_payload() -> None:
    event = Event("collision", values={"vehicles": 2})
    assert message(event).event is event
    assert message(event).values == {"vehicles": 2}
    assert message(Attributes({"price": 1.5})).values == {"price": 1.5}
    assert message(Attributes()).event is None
    assert message(Telemetry(Position(0.0, 0.0))).values == {}
    assert message().values == {}


@pytest.mark.parametrize(
    "kind", sorted(set(AddressKind) - {AddressKind.EVERYONE, AddressKind.AREA})
)
def test_an_address_needs_a_name(kind: AddressKind) -> None:
    with pytest.raises(MessageError, match=f"{kind} address needs a name"):
        Address(kind)
    assert Address(kind, "x").name == "x"


def test_an_area_address_needs_an_area() -> None:
    with pytest.raises(MessageError, match="needs an area"):
        Address(AddressKind.AREA)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address.client("car-1"), "client:car-1"),
        (Address.service("fuel"), "service:fuel"),
        (Address.broker(), "broker:any"),
        (Address.adapter("a"), "adapter:a"),
        (Address.group("taxis"), "group:taxis"),
        (Address.everyone(), "everyone"),
        (Address.to_area(AREA), "area"),
    ],
)
def test_an_address_reads_well(address: Address, text: str) -> None:
    assert str(address) == text


def test_emergencies_come_before_consumer_content() -> None:
    ordered = [
        Priority.EMERGENCY,
        Priority.WARNING,
        Priority.REPLY,
        Priority.NORMAL,
        Priority.CONTENT,
        Priority.BACKGROUND,
    ]
    assert sorted(Priority, reverse=True) == ordered
