"""Random and mutated packets: counted, dropped, and no exception escapes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from session.invariants import check_adapter, check_client

from mercury.model.area import Area, Circle, Polygon, Position
from mercury.model.errors import PacketError
from mercury.model.message import (
    Address,
    Attributes,
    Event,
    Grant,
    Kind,
    Message,
    Subscription,
    Telemetry,
)
from mercury.session import AdapterSessions, ClientSession, SessionSettings
from mercury.wire import HEADER_BYTES, decode, encode, pack

SEED = 20261115
HERE = Position(40.0, -111.0)
AREA = Area(Polygon((HERE, Position(41.0, -111.0), Position(41.0, -110.0))), valid_until_us=5)
PAYLOADS = [
    None,
    Telemetry(HERE, 90.0, 3.0, 5.0, 1300.0, 17),
    Event(
        "emergency", HERE, 20.0, 4.0, "text", {"a": 1, "b": "x", "c": 1.5, "d": b"\0", "e": True}
    ),
    Attributes({"fuel_price": 1.5, "brand": "X"}, HERE),
    Subscription(b"s" * 16, "fuel", "fuel_price < 1.6", 500.0),
    Grant(b"t" * 16, 1, 5.0, 1.0, "adapter"),
]
DESTINATIONS = [Address.broker(), Address.everyone(), Address.to_area(AREA),
                Address.to_area(Area(Circle(HERE, 5.0)))]  # fmt: skip


def bodies() -> list[tuple[Kind, bytes]]:
    return [
        (kind, encode(Message(kind=kind, source=Address.client("car"), destination=to,
                              payload=payload, topic="fuel")))
        for kind in Kind for payload in PAYLOADS for to in DESTINATIONS
    ]  # fmt: skip


def mutate(rng: random.Random, packet: bytes) -> bytes:
    data = bytearray(packet)
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(5):
            case 0 if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
            case 2:
                del data[rng.randrange(len(data) + 1) :]
            case 3:
                data += rng.randbytes(rng.randrange(40))
            case 4 if data:
                at = rng.randrange(len(data))
                data[at:at] = rng.randbytes(rng.randrange(8))
    if rng.random() < 0.7 and len(data) >= HEADER_BYTES:  # get past the length check
        data[6:8] = (len(data) - HEADER_BYTES & 0xFFFF).to_bytes(2, "big")
    return bytes(data)


def test_a_hundred_thousand_packets_do_no_harm() -> None:
    rng = random.Random(SEED)
    adapter = AdapterSessions(
        "adapter", SessionSettings(flood_rate_per_s=1e9, flood_burst=1e9), lambda: rng.randbytes(16)
    )
    client = ClientSession("car", SessionSettings(), random.Random(1), telemetry=Telemetry(HERE))
    client.start(0.0)
    adapter.receive(client.outbox.pop(), b"c" * 16, 0.0)
    client.receive(adapter.outbox.pop()[0], 0.0)
    good = bodies()
    sent = 0
    for number in range(60_000):
        now = number * 1e-4
        if rng.random() < 0.15:
            packet = rng.randbytes(rng.randrange(200))
        else:
            kind, body = rng.choice(good)
            token = client.token if rng.random() < 0.9 else rng.randbytes(16)
            packet = mutate(rng, pack(kind, 4, token, number + 1, body))
        adapter.receive(packet, b"c" * 16, now)
        client.receive(packet, now)
        sent += 2
        adapter.outbox.clear()
        client.outbox.clear()
        client.events.clear()
        if "car" not in adapter.table.by_identity or client.token not in adapter.table.by_token:
            # A mutated CLOSE, INIT or REFUSE got through, as it may: connect again.
            client = ClientSession(
                "car", SessionSettings(), random.Random(number), telemetry=Telemetry(HERE),
                epoch_us=number * 1_000_000,
            )  # fmt: skip
            client.start(now)
            adapter = AdapterSessions(
                "adapter", SessionSettings(flood_rate_per_s=1e9, flood_burst=1e9),
                lambda: rng.randbytes(16),
            )  # fmt: skip
            adapter.receive(client.outbox.pop(), b"c" * 16, now)
            client.receive(adapter.outbox.pop()[0], now)
        if number % 1000 == 0:
            check_adapter(adapter)
            check_client(client)
    assert sent >= 100_000
    check_adapter(adapter)
    check_client(client)


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_the_codec_knows_only_packet_errors(data: bytes) -> None:
    try:
        decode(data)
    except PacketError:
        pass


def test_the_codec_survives_mutations() -> None:
    rng = random.Random(SEED)
    good = [body for _, body in bodies()]
    understood = 0
    for _ in range(40_000):
        try:
            decode(mutate(rng, rng.choice(good)))
            understood += 1
        except PacketError as error:
            assert error.reason
    assert 0 < understood < 40_000
