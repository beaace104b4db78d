"""A live adapter and what the network throws at it: counted by reason, and others are served."""

from __future__ import annotations

import math
import random

import pytest
from live import HERE, Hand, connect, http_get, in_loop, live, until
from session.invariants import check_adapter
from wire.packets import unpack

from mercury.adapter import Adapter
from mercury.model.message import Attributes, Event, Kind, Telemetry
from mercury.service.statistics import LOSSES
from mercury.session import SessionSettings
from mercury.wire import HEADER_BYTES, pack, parse

SEED = 20_161_130
NOT_ON_EARTH = [(math.nan, 0.0), (0.0, math.nan), (90.01, 0.0), (0.0, -180.01), (math.inf, 0.0)]


async def shown(adapter: Adapter) -> dict[str, float]:
    """What /metrics says was dropped, by reason."""
    assert adapter.metrics is not None
    _, page = await http_get(adapter.metrics.port, "/metrics")
    prefix = 'mercury_adapter_dropped_total{reason="'
    lines = [line.removeprefix(prefix) for line in page.splitlines() if line.startswith(prefix)]
    counts = {line.split('"')[0]: float(line.split()[-1]) for line in lines}
    return {reason: count for reason, count in counts.items() if count or reason not in LOSSES}


async def check_dropped(adapter: Adapter, **expected: int) -> None:
    """Wait until exactly these have been counted, here and in the metrics."""
    wanted = {reason.replace("_", "-"): count for reason, count in expected.items()}
    await until(lambda: sum(adapter.statistics().dropped.values()) >= sum(wanted.values()))
    assert adapter.statistics().dropped == wanted
    assert await shown(adapter) == wanted


def damaged(body: bytes, **fields: int) -> bytes:
    """An Envelope with numbers that the model would refuse to write."""
    envelope = parse(body)
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope.SerializeToString()


@in_loop
async def test_what_is_no_packet_is_counted_by_reason_and_others_are_served() -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        await world.broker()
        async with connect(adapter, "calm") as calm:
            hand = Hand(adapter)
            good = pack(Kind.REPORT, 4, b"t" * 16, 1, b"body")
            hand.raw(good[:10], good[:31], good[:-1])
            hand.raw(good + b"x", good + bytes(60_000))
            hand.raw(b"GET / HTTP/1.1\r\n\r\n", b"", bytes(65_507))
            hand.raw(good[:2] + b"\x02" + good[3:])
            hand.raw(good[:3] + b"\xee" + good[4:])
            await check_dropped(
                adapter, truncated=3, oversized=2, not_mercury=3, version=1, unknown_kind=1
            )
            assert await calm.echo() > 0
            hand.close()


@in_loop
async def test_random_packets_do_no_harm() -> None:
    rng = random.Random(SEED)
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        await world.broker()
        async with connect(adapter, "calm") as calm:
            hand = Hand(adapter)
            await hand.init()
            valid = hand.packet(Kind.EVENT, hand.body(Kind.EVENT, Event("obstacle", HERE)))
            for number in range(400):
                packet = bytearray(rng.randbytes(rng.randrange(200)) if number % 2 else valid)
                if not number % 2:
                    for _ in range(rng.randint(1, 4)):
                        packet[rng.randrange(len(packet))] = rng.randrange(256)
                hand.raw(bytes(packet))
                if not number % 50:
                    assert await calm.echo() > 0, f"seed {SEED}"
            assert await calm.echo() > 0
            assert sum(adapter.statistics().dropped.values()) > 300
            assert await shown(adapter) == adapter.statistics().dropped
            check_adapter(adapter.sessions)
            hand.close()


@in_loop
async def test_unknown_sessions_forged_tokens_and_replays() -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        await world.broker()
        async with connect(adapter, "calm") as calm:
            hand = Hand(adapter)
            report = hand.body(Kind.REPORT, Telemetry(HERE))
            hand.raw(pack(Kind.REPORT, 4, b"\xff" * 16, 1, report))
            [refusal] = await until(lambda: list(hand.received))
            hand.received.clear()
            assert unpack(refusal)[0::2] == (Kind.REFUSE, b"\xff" * 16)
            assert len(refusal) == HEADER_BYTES  # no longer than what came, whoever sent that
            await hand.init()
            forged = hand.token[:-1] + bytes((hand.token[-1] ^ 1,))
            hand.raw(pack(Kind.REPORT, 4, forged, 1, report))
            first = hand.packet(Kind.REPORT, report)
            hand.raw(first, first, first)
            as_another = Hand(adapter, "calm")
            hand.raw(hand.packet(Kind.REPORT, as_another.body(Kind.REPORT, Telemetry(HERE))))
            hand.raw(hand.packet(Kind.ALERT, hand.body(Kind.ALERT, Event("fake"))))
            await check_dropped(
                adapter, unknown_session=2, replayed=2, forged_source=1, not_allowed=1
            )
            assert await calm.echo() > 0
            assert calm.session.sessions_opened == 1
            as_another.close()
            hand.close()


@in_loop
async def test_bad_envelopes_within_a_session() -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        await world.broker()
        async with connect(adapter, "calm") as calm:
            hand = Hand(adapter)
            await hand.init()
            echo = hand.body(Kind.REQUEST, Attributes(), topic="echo")
            for body in (
                b"\xff\xff\xff",
                damaged(echo, priority=200),  # no queue has this number
                damaged(echo, priority=2**31),
                damaged(echo, kind=Kind.CONTENT),  # the header says something else
                echo.replace(parse(echo).id, b"x" * 15 + b"\xff")[:-2],
            ):
                hand.raw(hand.packet(Kind.REQUEST, body))
            hand.raw(hand.packet(Kind.REQUEST, damaged(echo, version=2)))
            hand.raw(hand.packet(Kind.REQUEST, damaged(echo, kind=300)))
            await check_dropped(adapter, malformed=5, version=1, unknown_kind=1)
            assert await calm.echo() > 0
            hand.raw(hand.packet(Kind.REQUEST, echo))
            assert (await hand.next(Kind.REPLY)).topic == "echo"
            hand.close()


@pytest.mark.parametrize(("lat", "lon"), NOT_ON_EARTH)
@in_loop
async def test_places_that_are_not_on_earth(lat: float, lon: float) -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        hand = Hand(adapter)
        init = parse(hand.body(Kind.INIT, Telemetry(HERE)))
        init.telemetry.lat, init.telemetry.lon = lat, lon
        await hand.raw_init(init.SerializeToString())
        assert (await hand.next(Kind.REFUSE)).values == {"reason": "bad-coordinates"}
        await hand.init(incarnation=2)
        report = parse(hand.body(Kind.REPORT, Telemetry(HERE)))
        report.telemetry.lat, report.telemetry.lon = lat, lon
        hand.raw(hand.packet(Kind.REPORT, report.SerializeToString()))
        event = parse(hand.body(Kind.EVENT, Event("emergency", HERE)))
        event.event.position.lat, event.event.position.lon = lat, lon
        hand.raw(hand.packet(Kind.EVENT, event.SerializeToString()))
        await check_dropped(adapter, bad_coordinates=3)
        [session] = adapter.sessions.table
        assert adapter.sessions.table.lat[session.slot] == HERE.lat
        hand.close()


@in_loop
async def test_headings_and_speeds_that_are_no_numbers_do_no_harm() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "calm", speed_mps=10.0) as calm:
            hands = [Hand(adapter, f"hand-{number}") for number in range(3)]
            for hand, odd in zip(hands, (math.inf, -math.inf, math.nan), strict=True):
                await hand.init()
                hand.say(Kind.REPORT, Telemetry(HERE, heading_deg=odd, speed_mps=odd))
            await until(lambda: adapter.statistics().counters["reports"] >= 7)
            await calm.sense("emergency", text="crash")
            for hand in hands:
                assert (await hand.next(Kind.ALERT)).event.text == "crash"
                hand.close()


@in_loop
async def test_an_alert_larger_than_a_packet_cannot_stop_the_adapter() -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        await world.broker()
        async with connect(adapter, "calm") as calm:
            hand = Hand(adapter)
            await hand.init()
            # The alert that a broker makes of it is longer than the event was.
            wordy = hand.body(Kind.EVENT, Event("emergency", HERE, text="x" * 65_380))
            hand.raw(hand.packet(Kind.EVENT, wordy))
            assert (await hand.next(Kind.ALERT)).event.text == "Emergency ahead"
            assert await calm.echo() > 0
            hand.close()


@in_loop
async def test_a_flooding_client_is_cut_and_others_are_served() -> None:
    async with live() as world:
        slow = SessionSettings(flood_rate_per_s=20.0, flood_burst=30.0)
        adapter = await world.adapter(metrics_port=0, session=slow)
        await world.broker()
        async with connect(adapter, "calm") as calm:
            hand = Hand(adapter)
            await hand.init()
            for _ in range(10):
                for _ in range(50):
                    hand.say(Kind.CONTENT, Attributes({"x": 1}), topic="noise")
                assert await calm.echo() < 2.0
            await until(lambda: adapter.statistics().counters["packets_received"] > 500)
            dropped = adapter.statistics().dropped
            assert set(dropped) == {"flood"}
            assert dropped["flood"] > 300
            assert await shown(adapter) == dropped
            assert calm.session.sessions_opened == 1
            hand.close()


@in_loop
async def test_sessions_beyond_the_limit_are_refused() -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0, session=SessionSettings(max_sessions=2))
        hands = [Hand(adapter, f"hand-{number}") for number in range(3)]
        for hand in hands[:2]:
            await hand.init()
        await hands[2].raw_init(hands[2].body(Kind.INIT, Telemetry(HERE)))
        assert (await hands[2].next(Kind.REFUSE)).values == {"reason": "sessions-full"}
        await check_dropped(adapter, sessions_full=1)
        for hand in hands:
            hand.close()


@pytest.mark.parametrize("identity", ["x" * 129, "ü" * 65])
@in_loop
async def test_identities_that_are_too_long(identity: str) -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        hand = Hand(adapter, identity)
        await hand.raw_init(hand.body(Kind.INIT, Telemetry(HERE)))
        await check_dropped(adapter, bad_identity=1)
        hand.close()
