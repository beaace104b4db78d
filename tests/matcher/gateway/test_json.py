"""The gateway for people: objects of JSON over a websocket."""

from __future__ import annotations

import json

import pytest
from live import in_loop, until
from matcher.gateway_client import JSON, LAT, LON, METRE, Paper, move, near, publish, world

from mercury.config import GatewaySettings
from mercury.matcher.gateway.connection import OPS_AT_ONCE, GatewaySession
from mercury.matcher.gateway.register import Register
from mercury.matcher.hub import Hub
from mercury.matching import MatchingRules
from mercury.service.clock import now_us

SQUARE = {
    "type": "Polygon",
    "coordinates": [[[24.93, 60.16], [24.96, 60.16], [24.96, 60.18], [24.93, 60.18]]],
}


@in_loop
async def test_enter_inside_dwell_exit() -> None:
    async with world() as here, here.connect(JSON) as ann, here.connect() as cab:
        assert ann.websocket.subprotocol == JSON
        assert cab.websocket.subprotocol is None
        await ann.ok(near(inside=True, dwell_s=0.3, where="seats >= 2"))
        before_us = now_us()
        await cab.ok(publish("taxi-1", 100, values={"seats": 4}), publish("taxi-2", 0))
        told = await ann.event()
        assert told.pop("time_us") == pytest.approx(before_us, abs=5e6)
        assert told.pop("distance_m") == pytest.approx(100, rel=0.01)
        assert told == {
            "event": "enter",
            "reason": "moved",
            "subscription": "me",
            "publication": "taxi-1",
            "topic": "taxi",
            "values": {"seats": 4},
            "lat": pytest.approx(LAT + 100 * METRE, abs=1e-7),
            "lon": LON,
        }
        await cab.ok(move("taxi-1", 200))
        assert (await ann.event())["event"] == "inside"
        told = await ann.event()
        assert (told["event"], told["reason"]) == ("dwell", "time")
        await cab.ok(move("taxi-1", 600))
        told = await ann.event()
        assert (told["event"], told["reason"]) == ("exit", "moved")
        assert here.count("gateway_events") == 4


@in_loop
async def test_two_that_call_themselves_me() -> None:
    async with world() as here, here.connect() as ann, here.connect() as bob:
        await ann.ok(near("me", 0, radius_m=50))
        await bob.ok(near("me", 300, radius_m=50), publish("taxi-a", 0), publish("taxi-b", 300))
        assert (await ann.event())["publication"] == "taxi-a"
        assert (await bob.event())["publication"] == "taxi-b"
        assert here.entities() == (2, 2)


@in_loop
async def test_a_close_withdraws() -> None:
    async with world() as here, here.connect() as ann:
        await ann.ok(near())
        async with here.connect() as cab:
            await cab.ok(publish("taxi-1", 0), near("cab", 0))
            assert (await ann.event())["event"] == "enter"
        told = await ann.event()
        assert told["publication"] == "taxi-1"
        assert (told["event"], told["reason"]) == ("exit", "withdrawn")
        await until(lambda: here.entities() == (0, 1))


@in_loop
async def test_who_comes_back_keeps_what_the_old_connection_had() -> None:
    async with world() as here, here.connect() as ann, here.connect() as again:
        async with here.connect() as cab:
            await cab.ok(publish("taxi-1", 0))
            await again.ok(publish("taxi-1", 0, values={"seats": 1}))
        await until(lambda: here.count("gateway_connections") == 2)
        await ann.ok(near())
        assert (await ann.event())["values"] == {"seats": 1}
        assert here.entities() == (1, 1)


@in_loop
async def test_withdrawing() -> None:
    async with world() as here, here.connect() as ann, here.connect() as cab:
        await cab.ok(publish("taxi-1", 0, handle=3), publish("taxi-2", 0))
        await ann.ok(near())
        assert {(await ann.event())["publication"] for _ in range(2)} == {"taxi-1", "taxi-2"}
        await cab.ok({"op": "withdraw", "handle": 3})
        told = await ann.event()
        assert (told["event"], told["publication"]) == ("exit", "taxi-1")
        # Of a subscription: its last events come before the answer.
        await ann.websocket.send('{"op":"withdraw","id":"me","n":"last"}')
        assert '"exit"' in str(await ann.websocket.recv())
        assert str(await ann.websocket.recv()) == '{"ok":true,"n":"last"}'
        assert here.entities() == (1, 0)


@in_loop
async def test_values_and_subscriptions_change() -> None:
    async with world() as here, here.connect() as ann:
        await ann.ok(publish("taxi-1", 0, values={"seats": 4}), near(where="seats >= 2"))
        assert (await ann.event())["event"] == "enter"
        await ann.ok(publish("taxi-1", None, values={"seats": 1}))
        told = await ann.event()
        assert (told["event"], told["reason"], told["values"]) == ("exit", "changed", {"seats": 1})
        await ann.ok(near(where=""))
        assert (await ann.event())["event"] == "enter"
        # Another topic: what it was parts from its pairs, under its name.
        await ann.ok(publish("bus-1", 0, topic="bus"))
        await ann.websocket.send('{"op":"near","id":"me","topic":"bus","radius_m":500}')
        told = [await ann.event(), await ann.event()]
        assert [(one["event"], one["publication"], one["subscription"]) for one in told] == [
            ("exit", "taxi-1", "me"),
            ("enter", "bus-1", "me"),
        ]


@in_loop
async def test_a_polygon_needs_no_place_and_lives_as_long_as_its_owner() -> None:
    async with world(MatchingRules(ttl_s=0.2)) as here, here.connect() as ann:
        await ann.ok(near("centre", None, area=SQUARE))
        here.let_pass(0.5)
        await ann.ok(publish("taxi-1", 0))
        assert (await ann.event())["subscription"] == "centre"
        here.let_pass(0.5)
        # What moves is forgotten when it is not heard of, and says so when it is spoken of.
        told = await ann.event()
        assert (told["event"], told["reason"]) == ("exit", "expired")
        answer = await ann.say(move("taxi-1", 0))
        assert answer["reason"] == "expired"


@in_loop
async def test_asking_once() -> None:
    async with world(max_found=3) as here, here.connect() as ann:
        await ann.ok(*(publish(f"taxi-{i}", 10 * i, values={"seats": i}) for i in range(6)))
        ask = {"op": "ask", "topic": "taxi", "lat": LAT, "lon": LON, "radius_m": 45}
        answer = await ann.say({**ask, "where": "seats >= 1", "limit": 2, "n": 7})
        assert answer["n"] == 7
        assert [one["publication"] for one in answer["found"]] == ["taxi-1", "taxi-2"]
        assert answer["found"][0]["distance_m"] == pytest.approx(10, rel=0.01)
        assert len((await ann.say(ask))["found"]) == 3
        answer = await ann.say({"op": "ask", "topic": "taxi", "area": SQUARE})
        assert len(answer["found"]) == 3


@in_loop
async def test_a_list_is_answered_by_a_list() -> None:
    async with world() as here, here.connect() as ann:
        ops = [publish(f"taxi-{i}", 0, n=i) for i in range(1000)]
        ops[500] = {"op": "fly", "n": 500}
        answers = await ann.say(*ops)
        assert [answer["n"] for answer in answers] == list(range(1000))
        assert [answer["n"] for answer in answers if "error" in answer] == [500]
        assert here.entities() == (999, 0)
        # What comes behind a long list waits for it.
        await ann.websocket.send("[" + ",".join(['{"op":"hello"}'] * 1000) + "]")
        await ann.websocket.send('{"op":"hello","n":"after"}')
        assert str(await ann.websocket.recv()).startswith("[")
        assert str(await ann.websocket.recv()) == '{"ok":true,"n":"after"}'
        assert await ann.say([], []) is not None


@in_loop
async def test_a_late_position_changes_nothing() -> None:
    async with world() as here, here.connect() as ann:
        later_us = now_us() + 5_000_000
        await ann.ok(near(inside=True), publish("taxi-1"))
        await ann.ok(move("taxi-1", 0, time_us=later_us), move("taxi-1", 900, time_us=later_us - 1))
        await ann.ok(move("taxi-1", 10, time_us=later_us + 1))
        told = [await ann.event(), await ann.event()]
        assert [one["event"] for one in told] == ["enter", "inside"]
        assert [one["time_us"] for one in told] == [later_us, later_us + 1]
        assert here.hub.statistics().dropped == {"late": 1}


@in_loop
async def test_nobody_waits_for_the_long_list_of_another() -> None:
    hub = Hub(MatchingRules())
    register = Register(hub, GatewaySettings())
    long, short = Paper(), Paper()
    first = GatewaySession(register, long, binary=False)
    second = GatewaySession(register, short, binary=False)
    first.receive(json.dumps([publish(f"taxi-{i}") for i in range(3 * OPS_AT_ONCE)]))
    first.receive('{"op":"hello","n":"after"}')
    second.receive('{"op":"hello"}')
    assert (long.texts, short.texts) == ([], [{"ok": True}])
    assert long.is_held
    await until(lambda: len(long.texts) == 2)
    assert len(long.texts[0]) == 3 * OPS_AT_ONCE
    assert long.texts[1] == {"ok": True, "n": "after"}
    assert not long.is_held
    first.leave()
    second.leave()
    await until(lambda: hub.engine.statistics()["publications"] == 0)
