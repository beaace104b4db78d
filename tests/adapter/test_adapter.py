"""An adapter on a bus, with real sockets: what clients say, sessions, metrics."""

from __future__ import annotations

import json

import pytest
from live import FAR, HERE, NEAR, Hand, connect, http_get, in_loop, live, poll, until

from mercury.model import topics
from mercury.model.errors import AddressInUseError, BusFullError
from mercury.model.message import (
    Attributes,
    Event,
    Kind,
    Subscription,
)
from mercury.net import bind_udp
from mercury.session import SessionSettings
from mercury.wire import decode
from mercury.wire.records import Route, read_fix, read_route, read_traffic


@in_loop
async def test_what_clients_say_reaches_the_topic_it_belongs_to() -> None:
    async with live() as world:
        adapter = await world.adapter()
        reading = world.read(
            topics.REPORTS, topics.REQUESTS, "events.*", "content.*", topics.SUBSCRIPTIONS
        )
        async with connect(adapter, "car", speed_mps=12.0, heading_deg=90.0) as car:
            car.move(NEAR.lat, NEAR.lon, speed_mps=10.0, report=True)
            await car.sense("obstacle", text="tyre")
            await car.publish("fuel", {"price": 1.5}, priority=2)
            await car.send(car.compose(Kind.REQUEST, "echo", Attributes()))
            records = await poll(reading, 5)
        by_topic = {record.topic: record for record in records}
        assert set(by_topic) == {"reports", "events.obstacle", "content.fuel", "requests"}
        content = by_topic["content.fuel"]
        assert decode(content.value).values == {"price": 1.5}
        assert content.key == b"car"
        assert read_route(content.headers) == Route(Kind.CONTENT, 2, 0)
        place = read_fix(content.headers)
        assert place is not None
        assert (place.lat, place.lon, place.speed_mps) == (NEAR.lat, NEAR.lon, 10.0)
        assert by_topic["events.obstacle"].key == b"40.76,-111.89"
        assert decode(by_topic["events.obstacle"].value).event == Event(
            "obstacle", NEAR, speed_mps=10.0, text="tyre"
        )
        assert adapter.statistics().counters["messages"] == 3
        assert adapter.statistics().counters["reports"] == 2  # the INIT carries the first


@in_loop
async def test_an_emergency_carries_the_speed_of_traffic_around_it() -> None:
    async with live() as world:
        adapter = await world.adapter(traffic_radius_m=1000.0)
        reading = world.read("events.emergency")
        async with (
            connect(adapter, "one", HERE, speed_mps=10.0),
            connect(adapter, "two", NEAR, speed_mps=20.0) as two,
            connect(adapter, "silent", NEAR),
            connect(adapter, "away", FAR, speed_mps=90.0),
        ):
            await two.sense("emergency")
            [record] = await poll(reading, 1)
            assert read_traffic(record.headers) == pytest.approx(15.0)
            await two.sense("emergency", position=(0.0, 0.0))
            [record] = await poll(reading, 1)
            assert read_traffic(record.headers) is None


@in_loop
async def test_bad_messages_within_a_session_are_counted_and_not_passed_on() -> None:
    async with live() as world:
        adapter = await world.adapter()
        reading = world.read("events.*", "content.*", topics.REQUESTS)
        hand = Hand(adapter)
        await hand.init()
        hand.say(Kind.CONTENT, Attributes({"x": 1}), topic="no topic")
        hand.say(Kind.EVENT, Event("no/kind"))
        hand.say(Kind.EVENT, None)
        hand.say(Kind.CONTENT, Attributes(), topic="fuel", expires_us=1)
        hand.say(Kind.CONTENT, Attributes({"x": 2}), topic="fuel")
        [record] = await poll(reading, 1)
        assert decode(record.value).values == {"x": 2}
        assert adapter.statistics().dropped == {"bad-topic": 3, "expired": 1}
        hand.close()


@in_loop
async def test_a_client_that_starts_anew_holds_no_old_subscriptions() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter)
        await hand.init()
        hand.say(Kind.SUBSCRIBE, Subscription(b"1" * 16, "fuel"))
        await until(lambda: adapter.statistics().gauges["subscriptions"] == 1)
        hand.token, hand.sequence = bytes(16), 0
        await hand.init(incarnation=2)
        assert adapter.statistics().gauges["subscriptions"] == 0
        assert adapter.statistics().gauges["sessions"] == 1
        assert adapter.statistics().counters["sessions_replaced"] == 1
        hand.close()


def test_interests_are_refreshed_and_a_full_bus_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mercury.adapter.adapter._INTEREST_REFRESH_S", 0.01)
    in_loop(_refreshed)()


async def _refreshed() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter)
        await hand.init()
        hand.say(Kind.SUBSCRIBE, Subscription(b"1" * 16, "fuel"))
        interests = world.read(topics.SUBSCRIPTIONS)
        append = adapter.bus.append

        def full(topic: str, *rest: object) -> None:
            if topic == topics.SUBSCRIPTIONS:
                raise BusFullError("no space left")
            append(topic, *rest)  # type: ignore[arg-type]

        adapter.bus.append = full  # type: ignore[method-assign]
        await until(lambda: adapter.dropped["bus-unavailable"] >= 2)
        adapter.bus.append = append  # type: ignore[method-assign]
        interests.poll()
        subscription = decode((await poll(interests, 1))[0].value).payload
        assert isinstance(subscription, Subscription)
        assert subscription.topic == "fuel"
        hand.close()


@in_loop
async def test_who_falls_silent_is_pruned_with_its_subscriptions() -> None:
    async with live() as world:
        brief = SessionSettings(report_interval_s=0.05, missed_reports=2)
        adapter = await world.adapter(session=brief)
        hand = Hand(adapter)
        await hand.init()
        hand.say(Kind.SUBSCRIBE, Subscription(b"1" * 16, "fuel"))
        await until(lambda: adapter.statistics().counters.get("sessions_silent") == 1)
        assert adapter.statistics().gauges["sessions"] == 0
        assert adapter.statistics().gauges["subscriptions"] == 0
        hand.close()


@in_loop
async def test_who_hears_nothing_gets_heartbeats() -> None:
    async with live() as world:
        adapter = await world.adapter(session=SessionSettings(heartbeat_interval_s=0.05))
        hand = Hand(adapter)
        await hand.init()
        await until(lambda: len(hand.messages(Kind.HEARTBEAT)) >= 2)
        hand.close()


@in_loop
async def test_metrics_and_health_are_shown() -> None:
    async with live() as world:
        adapter = await world.adapter(metrics_port=0)
        assert adapter.metrics is not None
        async with connect(adapter, "car"):
            hand = Hand(adapter)
            hand.raw(b"no packet of ours")
            await until(lambda: adapter.statistics().dropped)
            hand.close()
            status, page = await http_get(adapter.metrics.port, "/metrics")
            assert status == 200
            assert "mercury_adapter_sessions 1.0" in page
            assert 'mercury_adapter_dropped_total{reason="not-mercury"} 1.0' in page
            status, page = await http_get(adapter.metrics.port, "/healthz")
            assert (status, json.loads(page)["status"]) == (200, "ok")
            assert json.loads(page)["sessions"] == 1
            assert (await http_get(adapter.metrics.port, "/other"))[0] == 404


@in_loop
async def test_a_taken_port_is_a_clear_error_and_leaves_nothing_open() -> None:
    with bind_udp("127.0.0.1", 0) as taken:
        async with live() as world:
            port = taken.getsockname()[1]
            with pytest.raises(AddressInUseError, match=f"UDP port {port} on 127.0.0.1 is in use"):
                await world.adapter(port=port, metrics_port=0)
