"""Random and mutated packets: counted, dropped, and no exception escapes."""

from __future__ import annotations

import random
from collections import Counter

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
from mercury.wire.packet import read_header

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
    return bytes(data)


def with_length(packet: bytes) -> bytes:
    """The packet with the length of its body, so that it passes this check."""
    length = (len(packet) - HEADER_BYTES & 0xFFFF).to_bytes(2, "big")
    return packet[:6] + length + packet[8:] if len(packet) >= HEADER_BYTES else packet


def connected(rng: random.Random, number: int, now: float) -> tuple[AdapterSessions, ClientSession]:
    """An adapter and a client with a session."""
    settings = SessionSettings(flood_rate_per_s=1e9, flood_burst=1e9)
    adapter = AdapterSessions("adapter", settings, lambda: rng.randbytes(16))
    client = ClientSession(
        "car", SessionSettings(), random.Random(number), telemetry=Telemetry(HERE),
        epoch_us=number * 1_000_000,
    )  # fmt: skip
    client.start(now)
    for _ in range(2):  # a challenge, and the session
        adapter.receive(client.outbox.pop(), b"c" * 16, now)
        client.receive(adapter.outbox.pop()[0], now)
    return adapter, client


def test_each_mutated_packet_is_taken_or_counted_by_reason() -> None:
    rng = random.Random(SEED)
    adapter, client = connected(rng, 0, 0.0)
    good = bodies()
    taken, dropped = Counter[str](), Counter[str]()
    for number in range(60_000):
        now = number * 1e-4
        if rng.random() < 0.15:
            packet = rng.randbytes(rng.randrange(200))
        else:
            kind, body = rng.choice(good)
            cookie = adapter._cookies.make(b"c" * 16, now)
            token = cookie if kind == Kind.INIT else client.token
            token = token if rng.random() < 0.9 else rng.randbytes(16)
            highest = max(adapter.table.by_identity["car"].replay.highest, client._replay.highest)
            packet = mutate(rng, pack(kind, 4, token, highest + 1, body))
            packet = with_length(packet) if rng.random() < 0.7 else packet
        before, challenges = adapter.dropped.copy(), adapter.challenges
        event = adapter.receive(packet, b"c" * 16, now)
        reasons = adapter.dropped - before
        challenged = adapter.challenges - challenges
        is_receipt = event is None and not reasons and read_header(packet)[0] == Kind.RECEIPT
        ways = (event is not None) + reasons.total() + challenged + is_receipt
        assert ways == 1, packet.hex()
        dropped += reasons
        taken["adapter"] += not reasons
        taken["challenged"] += challenged
        before = client.dropped.copy()
        client.receive(packet, now)
        dropped += client.dropped - before
        taken["client"] += client.dropped == before
        adapter.outbox.clear()
        client.outbox.clear()
        client.events.clear()
        known = "car" in adapter.table.by_identity and client.token in adapter.table.by_token
        if not known or max(adapter.table.by_token[client.token].replay.highest,
                            client._replay.highest) > 1 << 63:  # fmt: skip
            # A mutated CLOSE, INIT or REFUSE got through, as it may, or a very high number.
            adapter, client = connected(rng, number, now)
        if number % 1000 == 0:
            check_adapter(adapter)
            check_client(client)
    check_adapter(adapter)
    check_client(client)
    # Some packets passed all checks, and each check stopped some.
    assert min(taken["adapter"], taken["client"]) > 1000
    assert taken["challenged"] > 100
    assert set(dropped) >= {
        "bad-coordinates", "bad-identity", "forged-source", "malformed", "no-address",
        "no-telemetry", "not-allowed", "not-mercury", "oversized", "replayed", "stale-init",
        "truncated", "unknown-kind", "unknown-session", "version",
    }  # fmt: skip


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_the_codec_knows_only_packet_errors(data: bytes) -> None:
    try:
        decode(data)
    except PacketError as error:
        assert error.reason


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
    assert 1000 < understood < 39_000
