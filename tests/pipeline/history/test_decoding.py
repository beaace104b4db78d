"""What messages say, as columns: alerts of services, and what clients tell each other."""

from __future__ import annotations

import json
import uuid

import pytest
from pipeline.history import recording

from mercury.model.area import Area, Circle
from mercury.model.delivery import Delivery, DeliveryState
from mercury.model.errors import PacketError
from mercury.model.message import Address, Attributes, DeliveryPolicy, Event, Kind, Message
from mercury.pipeline.history.decoding import read_alert, read_receipts
from mercury.wire import encode
from mercury.wire import mercury_pb2 as pb


def content(to: Address, **fields: object) -> bytes:
    return encode(
        Message(
            kind=Kind.CONTENT,
            source=Address.client("car-1"),
            destination=to,
            topic="message",
            policy=DeliveryPolicy.REPEAT,
            sent_us=5,
            payload=Attributes({"text": "ice", "depth": 2}, recording.CRASH),
            **fields,  # type: ignore[arg-type]
        )
    )


@pytest.mark.parametrize(
    ("to", "word"),
    [
        (Address.client("car-2"), "client:car-2"),
        (Address.group("blue"), "group:blue"),
        (Address.everyone(), "everyone"),
        (Address.to_area(Area(Circle(recording.CRASH, 50.0))), "area"),
    ],
)
def test_what_clients_tell_each_other(to: Address, word: str) -> None:
    row = read_alert("alerts.normal", None, content(to, expires_us=7))
    assert (row["kind"], row["message_kind"], row["subject"]) == ("content", "content", "message")
    assert (row["source"], row["destination"], row["policy"]) == ("client:car-1", word, "repeat")
    assert (row["sent_us"], row["expires_us"], row["ends_us"]) == (5, 7, 7)
    assert (row["text"], json.loads(row["values"])) == ("ice", {"depth": 2, "text": "ice"})
    assert (row["lat"], row["lon"]) == pytest.approx((recording.CRASH.lat, recording.CRASH.lon))
    assert (row["area"] is not None) == (word == "area")


def test_a_message_ends_with_its_area_or_its_expiry() -> None:
    circle = Circle(recording.CRASH, 50.0)
    for until_us, expires_us, ends_us in ((5, 9, 5), (9, 5, 5), (None, 5, 5), (5, 0, 5),
                                          (None, 0, None)):  # fmt: skip
        to = Address.to_area(Area(circle, valid_until_us=until_us))
        assert read_alert("", None, content(to, expires_us=expires_us))["ends_us"] == ends_us


def test_an_alert_tells_of_an_event() -> None:
    message = Message(
        kind=Kind.ALERT,
        source=Address.service("office"),
        destination=Address.everyone(),
        payload=Event("flood", text="Stay away"),
    )
    row = read_alert("alerts.normal", None, encode(message))
    assert (row["kind"], row["message_kind"], row["subject"]) == ("flood", "alert", None)
    assert (row["text"], row["values"], row["lat"]) == ("Stay away", None, None)


def test_receipts_become_columns() -> None:
    rows = [Delivery("a", DeliveryState.WAITING), Delivery("b", DeliveryState.REFUSED, "full")]
    _, value, *_ = recording.receipts(uuid.UUID(bytes=b"x" * 16), *rows)
    row = read_receipts("deliveries", None, value)
    assert (row["recipients"], row["waiting"], row["adapter"], row["kind"]) == (2, 1, "a", "alert")
    with pytest.raises(PacketError, match="no-receipts"):
        read_receipts("deliveries", None, content(Address.everyone()))
    torn = pb.Envelope(version=1, kind=pb.RECEIPT, id=b"i" * 16)
    torn.deliveries.message = b"x" * 16
    torn.deliveries.client.append("a")
    with pytest.raises(PacketError, match="malformed"):
        read_receipts("deliveries", None, torn.SerializeToString())
