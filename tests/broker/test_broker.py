"""Brokers on a bus: what they answer, alert and match, alone and together."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from live import FAR, HERE, NEAR, Live, in_loop, live, poll, until

from mercury.broker import Broker
from mercury.bus import Headers, Record
from mercury.config.settings import BrokerSettings
from mercury.model import topics
from mercury.model.area import Area, Circle, Position
from mercury.model.filter import compile_filter, interest_id
from mercury.model.identity import derived_id
from mercury.model.message import (
    Address,
    Attributes,
    Event,
    Kind,
    Message,
    Payload,
    Priority,
    Subscription,
)
from mercury.wire import MAX_BODY_BYTES, decode, encode
from mercury.wire.records import read_fix, read_interests, read_route, traffic_header

CAR = Address.client("car")


def message(kind: Kind, topic: str = "", payload: Payload = None, **fields: Any) -> Message:
    fields = {"source": CAR, "destination": Address.broker(), **fields}
    return Message(kind=kind, topic=topic, payload=payload, **fields)


def ask(world: Live, request: Message, key: bytes = b"car") -> Message:
    return world.append(topics.REQUESTS, request, key)


def emergency(
    world: Live, position: Position | None = HERE, headers: Headers = (), **fields: Any
) -> Message:
    event = message(Kind.EVENT, payload=Event("emergency", position, **fields))
    world.bus.append("events.emergency", encode(event), b"place", headers)
    world.bus.flush_now()
    return event


def area_of(record: Record) -> Circle:
    area = decode(record.value).destination.area
    assert area is not None
    assert isinstance(area.shape, Circle)
    return area.shape


@in_loop
async def test_an_echo_comes_back_with_what_was_sent() -> None:
    async with live() as world:
        broker = await world.broker(id="b")
        replies = world.read(topics.REPLIES)
        request = ask(world, message(Kind.REQUEST, "echo", Attributes({"x": 1}), priority=8))
        [record] = await poll(replies, 1)
        reply = decode(record.value)
        assert (reply.kind, reply.source, reply.destination) == (
            Kind.REPLY,
            Address.broker("b"),
            CAR,
        )
        assert (reply.correlation, reply.values, reply.priority) == (request.id, {"x": 1}, 8)
        assert record.key == b"car"
        assert read_route(record.headers) == (Kind.REPLY, 8, 0)
        assert broker.statistics().counters["echoes"] == 1


@in_loop
async def test_an_answer_that_would_not_fit_in_a_packet_is_an_error_instead() -> None:
    async with live() as world:
        await world.broker(id="a-broker-with-quite-a-long-name")
        replies = world.read(topics.REPLIES)
        size = MAX_BODY_BYTES - 80
        ask(world, message(Kind.REQUEST, "echo", Attributes({"x": b"x" * size})))
        [record] = await poll(replies, 1)
        assert len(record.value) <= MAX_BODY_BYTES
        assert "one packet carries 65475" in str(decode(record.value).values["error"])


@in_loop
async def test_an_unknown_request_is_told_so() -> None:
    async with live() as world:
        await world.broker()
        replies = world.read(topics.REPLIES)
        ask(world, message(Kind.REQUEST, "weather", Attributes()))
        [record] = await poll(replies, 1)
        assert decode(record.value).values == {"error": "no such request: 'weather'"}


@in_loop
async def test_an_emergency_becomes_an_alert_to_the_area() -> None:
    async with live() as world:
        broker = await world.broker(emergency_radius_m=700.0, emergency_validity_s=30.0)
        alerts = world.read(topics.ALERTS_URGENT)
        event = emergency(world, text="crash", values={"vehicles": 2})
        [record] = await poll(alerts, 1)
        alert = decode(record.value)
        assert (alert.kind, alert.priority) == (Kind.ALERT, Priority.EMERGENCY)
        assert alert.correlation == event.id
        assert alert.event == Event("emergency", HERE, 700.0, None, "crash", {"vehicles": 2})
        area = alert.destination.area
        assert area is not None
        assert area.shape == Circle(HERE, 700.0)
        assert area.valid_until_us == alert.expires_us
        assert 0 < alert.expires_us - time.time_ns() // 1000 <= 30_000_000
        assert broker.statistics().counters["alerts"] == 1


@in_loop
async def test_the_radius_grows_with_the_speed_of_traffic() -> None:
    async with live() as world:
        await world.broker(emergency_horizon_s=20.0, merge_distance_m=0, merge_window_s=0)
        alerts = world.read(topics.ALERTS_URGENT)
        emergency(world, headers=(traffic_header(40.0),), speed_mps=90.0)
        emergency(world, FAR, speed_mps=50.0)  # traffic is unknown: the sender's own speed
        emergency(world, NEAR, radius_m=900.0)
        emergency(world, Position(0.0, 0.0), headers=(traffic_header(1e9),))
        found = {decode(record.value).event.position: area_of(record).radius_m
                 for record in await poll(alerts, 4)}  # fmt: skip
        assert found == {HERE: 800.0, FAR: 1000.0, NEAR: 900.0, Position(0.0, 0.0): 5000.0}


@in_loop
async def test_several_witnesses_make_one_alert() -> None:
    async with live() as world:
        broker = await world.broker(merge_distance_m=200.0)
        alerts = world.read(topics.ALERTS_URGENT)
        seen = [emergency(world, fix) for fix in (HERE, NEAR, HERE)]
        elsewhere = emergency(world, FAR)
        records = await poll(alerts, 2)
        assert [decode(one.value).correlation for one in records] == [seen[0].id, elsewhere.id]
        assert broker.statistics().counters["emergencies"] == 4
        assert broker.statistics().counters["emergencies_merged"] == 2


@in_loop
async def test_the_same_work_done_again_gives_the_same_alert() -> None:
    async with live() as world:
        await world.broker()
        alerts = world.read(topics.ALERTS_URGENT)
        event = emergency(world)
        [first] = await poll(alerts, 1)
        # A broker that knows nothing of the first takes the same record once more.
        another = Broker(world.bus, BrokerSettings(id="another"))
        record = first._replace(topic="events.emergency", value=encode(event))
        another._on_emergency(record)
        world.bus.flush_now()
        [second] = await poll(alerts, 1)
        assert decode(first.value).id == decode(second.value).id
        assert decode(first.value).id.bytes == derived_id(event.id.bytes, "alert")


@in_loop
async def test_an_emergency_too_wordy_for_a_packet_is_alerted_in_brief() -> None:
    async with live() as world:
        await world.broker()
        alerts = world.read(topics.ALERTS_URGENT)
        emergency(world, text="x" * (MAX_BODY_BYTES - 90))
        [record] = await poll(alerts, 1)
        assert len(record.value) < 1000
        assert decode(record.value).event.text == "Emergency ahead"
        assert area_of(record).center == HERE


@in_loop
async def test_a_subscription_is_confirmed_and_told_to_all_brokers() -> None:
    async with live() as world:
        one, other = await world.broker(id="one"), await world.broker(id="other")
        replies, told = world.read(topics.REPLIES), world.read(topics.SUBSCRIPTIONS)
        subscription = Subscription(b"w" * 16, "fuel", "price < 1.6")
        ask(world, message(Kind.SUBSCRIBE, "fuel", subscription))
        [reply] = await poll(replies, 1)
        assert decode(reply.value).values == {"ok": True}
        [record] = await poll(told, 1)
        assert record.key == interest_id("fuel", compile_filter("price < 1.6"))
        await until(lambda: len(one.interests) == len(other.interests) == 1)


@pytest.mark.parametrize(
    ("subscription", "error"),
    [
        (Subscription(b"1", "fuel", "price <"), "the filter does not parse: "),
        (Subscription(b"1", "no topic"), "'no topic' is no name for a topic"),
        (Subscription(b"1", "fuel", near_m=-3.0), "near_m must be more than 0, not -3"),
        (Subscription(b"1", "fuel", near_m=float("nan")), "near_m must be more than 0, not nan"),
    ],
)
@in_loop
async def test_a_senseless_subscription_is_refused_with_the_reason(
    subscription: Subscription, error: str
) -> None:
    async with live() as world:
        broker = await world.broker()
        replies = world.read(topics.REPLIES)
        ask(world, message(Kind.SUBSCRIBE, subscription.topic, subscription))
        [record] = await poll(replies, 1)
        assert str(decode(record.value).values["error"]).startswith(error)
        assert len(broker.interests) == 0


@in_loop
async def test_content_is_passed_on_with_the_interests_it_matches() -> None:
    async with live() as world:
        broker = await world.broker()
        replies, matches = world.read(topics.REPLIES), world.read(topics.MATCHED_CONTENT)
        for number, text in enumerate(("", "price < 1.6", 'brand == "Y"')):
            subscription = Subscription(b"%d" % number, "fuel", text)
            ask(world, message(Kind.SUBSCRIBE, "fuel", subscription))
        await poll(replies, 3)
        fix = Attributes({"price": 1.5, "brand": "X"}, NEAR)
        sent = world.append("content.fuel", message(Kind.CONTENT, "fuel", fix, priority=2))
        world.append("content.parking", message(Kind.CONTENT, "parking", Attributes()))
        [record] = await poll(matches, 1)
        assert decode(record.value) == sent
        assert set(read_interests(record.headers)) == {
            interest_id("fuel", compile_filter(text)) for text in ("", "price < 1.6")
        }
        assert read_route(record.headers) == (Kind.CONTENT, 2, 0)
        where = read_fix(record.headers)
        assert where is not None
        assert (where.lat, where.lon) == (NEAR.lat, NEAR.lon)
        await until(lambda: broker.statistics().counters["content"] == 2)
        assert broker.statistics().counters["content_matched"] == 1


@in_loop
async def test_conditions_are_told_to_who_asks() -> None:
    async with live() as world:
        await world.broker()
        replies = world.read(topics.REPLIES)
        emergency(world, text="crash")
        alerts = world.bus.subscribe(topics.ALERTS, start="earliest")
        await poll(alerts, 1)
        for fix in (NEAR, FAR):
            area = Address.to_area(Area(Circle(fix, 100.0)))
            ask(world, message(Kind.REQUEST, "conditions", Attributes(), destination=area))
        ask(world, message(Kind.REQUEST, "conditions", Attributes()))
        here, there, nowhere = (decode(one.value).values for one in await poll(replies, 3))
        [condition] = json.loads(str(here["conditions"]))
        assert (condition["kind"], condition["text"]) == ("emergency", "crash")
        assert (here["count"], there["count"], there["conditions"]) == (1, 0, "[]")
        assert "addressed to an area" in str(nowhere["error"])


@in_loop
async def test_a_later_broker_knows_what_was_subscribed_and_alerted_before() -> None:
    async with live() as world:
        first = await world.broker(id="first")
        replies = world.read(topics.REPLIES)
        ask(world, message(Kind.SUBSCRIBE, "fuel", Subscription(b"1", "fuel")))
        emergency(world)
        await poll(replies, 1)
        await until(lambda: len(first.conditions) == 1)
        await world.stop(first)
        second = await world.broker(id="second")
        assert len(second.interests) == 1
        assert len(second.conditions) == 1


@in_loop
async def test_two_brokers_share_the_work_and_answer_each_request_once() -> None:
    async with live() as world:
        one, other = await world.broker(id="one"), await world.broker(id="other")
        replies = world.read(topics.REPLIES)
        requests = [
            ask(world, message(Kind.REQUEST, "echo", Attributes()), b"car-%d" % number)
            for number in range(200)
        ]
        answered = [decode(record.value) for record in await poll(replies, 200)]
        assert sorted(reply.correlation for reply in answered) == sorted(one.id for one in requests)
        shares = [broker.statistics().counters["echoes"] for broker in (one, other)]
        assert sum(shares) == 200
        assert min(shares) > 0
        assert replies.poll() == []


@in_loop
async def test_the_work_of_a_stopped_broker_is_taken_over() -> None:
    async with live() as world:
        one, other = await world.broker(id="one"), await world.broker(id="other")
        replies = world.read(topics.REPLIES)

        def ask_all() -> set[bytes]:
            keys = [b"car-%d" % number for number in range(50)]
            return {ask(world, message(Kind.REQUEST, "echo", Attributes()), key).id for key in keys}

        asked = ask_all()
        await poll(replies, 50)
        await world.stop(one)
        asked = ask_all()
        assert {decode(one.value).correlation for one in await poll(replies, 50)} == asked
        await world.stop(other)
        asked = ask_all()  # nobody is there
        await world.broker(id="third")
        assert {decode(one.value).correlation for one in await poll(replies, 50)} == asked
        assert replies.poll() == []


@in_loop
async def test_bad_records_are_counted_and_the_others_served() -> None:
    async with live() as world:
        broker = await world.broker()
        replies = world.read(topics.REPLIES)
        no_client = message(Kind.REQUEST, "echo", source=Address.service("x"))
        expired = message(Kind.REQUEST, "echo", expires_us=1)
        nowhere = message(Kind.EVENT, payload=Event("emergency"))
        for topic, value in (
            (topics.REQUESTS, b"\xff\xff"),
            (topics.REQUESTS, encode(no_client)),
            (topics.REQUESTS, encode(expired)),
            (topics.REQUESTS, encode(message(Kind.ALERT))),
            ("events.emergency", b"\xff\xff"),
            ("events.emergency", encode(nowhere)),
            ("content.fuel", b"\xff\xff"),
            (topics.SUBSCRIPTIONS, b"\xff\xff"),
            (topics.CONDITIONS, b"\xff\xff"),
        ):
            world.bus.append(topic, value, b"car")
        world.bus.flush_now()
        ask(world, message(Kind.REQUEST, "echo", Attributes({"still": "here"})))
        [record] = await poll(replies, 1)
        assert decode(record.value).values == {"still": "here"}
        await until(lambda: sum(broker.statistics().dropped.values()) == 9)
        assert broker.statistics().dropped == {
            "malformed": 6, "no-address": 1, "expired": 1, "unknown-kind": 1,
        }  # fmt: skip
