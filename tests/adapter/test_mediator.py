"""Delivery between adapter and clients, over real sockets: repeated until answered, told once."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import pytest
from live import FAR, HERE, NEAR, Hand, Live, connect, first, in_loop, live, poll, until
from mediator.invariants import check_outgoing
from wire.packets import unpack

from mercury.bus import Record
from mercury.config.mediator import MediatorSettings
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.errors import BusFullError, MessageError
from mercury.model.message import (
    Address,
    Attributes,
    DeliveryPolicy,
    Event,
    Kind,
    Message,
    Priority,
)
from mercury.service import now
from mercury.wire import HEADER_BYTES, decode, encode, mercury_pb2, parse
from mercury.wire.packet import WANTS_RECEIPT, wants_receipt

QUICK = MediatorSettings.model_validate(
    {
        "rules": {
            "alert": {"policy": "critical", "resend_after_s": 0.05, "backoff": 1.0},
            "hint": {"policy": "repeat", "resend_after_s": 0.02, "max_tries": 2},
            "event": {"policy": "repeat", "resend_after_s": 0.05, "max_tries": 100},
        },
        "groups": {"blue": ["configured"]},
    }
)
AROUND_HERE = Area(Circle(HERE, 500.0))


def say(
    world: Live, to: Address, *, kind: str = "emergency", valid_s: float = 60.0, **fields: object
) -> Message:
    message = Message(
        kind=Kind.ALERT,
        source=Address.service("office"),
        destination=to,
        topic=kind,
        priority=Priority.EMERGENCY,
        expires_us=time.time_ns() // 1000 + int(valid_s * 1e6),
        payload=Event(kind, HERE, text="stop"),
        **fields,  # type: ignore[arg-type]
    )
    return world.append(topics.alerts_topic(message.priority), message)


def rows(records: list[Record]) -> list[Delivery]:
    found = []
    for record in records:
        payload = decode(record.value).payload
        assert isinstance(payload, Deliveries)
        found += payload.rows
    return found


async def ended(consumer: object) -> Delivery:
    """The first copy that is settled."""
    while True:
        for row in rows(await poll(consumer, 1)):  # type: ignore[arg-type]
            if row.state is not DeliveryState.WAITING:
                return row


@in_loop
async def test_an_alert_is_repeated_until_it_is_answered() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        receipts = world.read(topics.DELIVERIES)
        hand = Hand(adapter)
        await hand.init()
        sent = say(world, Address.client("hand"))
        await until(lambda: len(hand.messages(Kind.ALERT)) >= 3)
        assert all(wants_receipt(one) for one in hand.received if unpack(one).kind == Kind.ALERT)
        hand.acknowledge(sent.id)
        row = await ended(receipts)
        assert (row.client, row.state) == ("hand", DeliveryState.ACKNOWLEDGED)
        assert row.tries >= 3
        assert row.addressed_us <= row.first_sent_us < row.settled_us
        count = len(hand.messages(Kind.ALERT))
        assert list(adapter.mediator.due(now() + 50.0)) == []
        assert len(hand.messages(Kind.ALERT)) == count
        hand.close()


@in_loop
async def test_a_client_answers_and_the_ledger_knows() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        receipts = world.read(topics.DELIVERIES)
        async with connect(adapter, "car", NEAR) as car:
            say(world, Address.to_area(AROUND_HERE))
            assert (await first(car)).event.text == "stop"
            row = await ended(receipts)
            assert (row.client, row.state) == ("car", DeliveryState.ACKNOWLEDGED)
            assert row.tries >= 1  # a busy machine may be slower than the first repetition
            assert car.mediator.incoming.statistics["adapter"].acks_sent == 1


@in_loop
async def test_what_nobody_answers_is_given_up_or_expires_with_its_reason() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        receipts = world.read(topics.DELIVERIES)
        hand = Hand(adapter)
        await hand.init()
        say(world, Address.client("hand"), kind="emergency", valid_s=0.3)
        row = await ended(receipts)
        assert (row.client, row.state) == ("hand", DeliveryState.EXPIRED)
        assert row.reason == "not-acknowledged"
        assert row.tries > 2
        hand.close()


@in_loop
async def test_who_is_away_until_it_ends_is_unreachable() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        receipts = world.read(topics.DELIVERIES)
        hand = Hand(adapter)
        await hand.init()
        say(world, Address.client("hand"), valid_s=0.4)
        await until(lambda: hand.messages(Kind.ALERT))
        hand.say(Kind.CLOSE)
        row = await ended(receipts)
        assert (row.client, row.state) == ("hand", DeliveryState.UNREACHABLE)
        assert row.reason == "away"
        hand.close()


@in_loop
async def test_what_a_client_senses_is_confirmed_and_passed_on_once() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        events = world.read("events.*")
        hand = Hand(adapter)
        await hand.init()
        body = hand.body(Kind.EVENT, Event("collision", HERE))
        for _ in range(3):
            hand.raw(hand.packet(Kind.EVENT, body, WANTS_RECEIPT))
        await until(lambda: [one for one in hand.received if unpack(one).kind == Kind.RECEIPT])
        await until(lambda: adapter.counters["packets_received"] == 5)  # two of them INITs
        assert len(await poll(events, 1)) == 1
        assert await events.read(timeout_s=0.05) == []
        # What can never be taken is refused, with the reason.
        bad = hand.body(Kind.EVENT, Event("no such name!", HERE))
        hand.received.clear()
        hand.raw(hand.packet(Kind.EVENT, bad, WANTS_RECEIPT))
        await until(lambda: hand.received)
        # And so is each of its copies.
        hand.raw(hand.packet(Kind.EVENT, bad, WANTS_RECEIPT))
        await until(lambda: len(hand.received) == 2)
        for packet in hand.received:
            [refusal] = parse(packet[HEADER_BYTES:]).refused
            assert refusal.reason == "bad-topic"
        hand.close()


@in_loop
async def test_a_client_knows_that_the_adapter_has_it() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        async with connect(adapter, "car") as car:
            message = await car.sense("collision")
            assert await car.taken(message, 5.0) is DeliveryState.ACKNOWLEDGED
            with pytest.raises(MessageError, match="no name for an event kind"):
                await car.sense("no such name!")
            # The adapter refuses it as well, should a client not look.
            bad = car.compose(Kind.EVENT, "", Event("no such name!", HERE))
            await car._say(replace(bad, policy=DeliveryPolicy.REPEAT))
            assert await car.taken(bad, 5.0) is DeliveryState.REFUSED


@in_loop
async def test_clients_tell_each_other_and_hear_who_heard() -> None:
    async with live() as world:
        one = await world.adapter(id="one", mediator=QUICK)
        two = await world.adapter(id="two", mediator=QUICK)
        async with (
            connect(one, "abe", HERE) as abe,
            connect(two, "ben", NEAR, groups=["blue"]) as ben,
            connect(two, "configured", FAR) as configured,
        ):
            told = await abe.tell("ben", {"x": 1}, policy="critical")
            heard = await first(ben)
            assert (heard.source.name, heard.values["x"]) == ("abe", 1)
            assert (await told.settled(5.0))["ben"].state is DeliveryState.ACKNOWLEDGED
            # A group: by what a client says of itself, and by configuration.
            told = await abe.tell(Address.group("blue"), {"x": 2})
            assert (await first(ben)).values["x"] == 2
            assert (await first(configured)).values["x"] == 2
            await until(lambda: told.heard == ["ben", "configured"])
            # All within a range.
            told = await abe.tell(None, {"x": 3}, within_m=1000.0)
            assert (await first(ben)).values["x"] == 3
            await until(lambda: told.heard == ["ben"])
            assert len(abe.inbox) == 0  # nobody hears itself


@in_loop
async def test_who_joins_a_group_hears_it_and_who_leaves_does_not() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        async with connect(adapter, "abe") as abe, connect(adapter, "ben") as ben:
            await abe.tell(Address.group("red"), {"x": 1})
            await ben.join("red")
            assert (await first(ben)).values["x"] == 1  # it still holds
            await ben.leave("red")
            await until(lambda: not len(adapter.addressing.groups.slots("red")))
            await abe.tell(Address.group("red"), {"x": 2})
            await abe.tell("ben", {"x": 3})
            assert (await first(ben)).values["x"] == 3


@in_loop
async def test_who_closes_right_after_a_message_has_answered_it() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        slow = MediatorSettings(ack_after_s=5.0)  # its receipts wait for a packet to ride on
        async with connect(adapter, "car", mediator=slow) as car:
            sent = say(world, Address.client("car"), kind="hint")
            assert (await first(car)).id == sent.id
        await until(lambda: adapter.counters["receipts"] == 1, timeout_s=5.0)


@in_loop
async def test_clients_cannot_speak_to_everyone_or_as_an_emergency() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        async with connect(adapter, "abe") as abe:
            with pytest.raises(MessageError, match="not everyone"):
                await abe.tell(Address.everyone(), {"x": 1})
            with pytest.raises(MessageError, match="a priority up to"):
                await abe.tell("ben", {"x": 1}, priority=Priority.EMERGENCY)
            # The adapter refuses it as well, should a client not look.
            for to, priority in (
                (Address.everyone(), Priority.NORMAL),
                (Address.client("ben"), Priority.EMERGENCY),
            ):
                said = abe.compose(Kind.CONTENT, "message", Attributes({"x": 1}), priority)
                said = replace(said, destination=to, policy=DeliveryPolicy.REPEAT)
                await abe._say(said)
                assert await abe.taken(said, 5.0) is DeliveryState.REFUSED


@in_loop
async def test_order_is_kept_from_one_client_to_another() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        async with connect(adapter, "abe") as abe, connect(adapter, "ben") as ben:
            for number in range(20):
                await abe.tell("ben", {"x": number}, policy="critical", ordered=True)
            assert [(await first(ben)).values["x"] for _ in range(20)] == list(range(20))


@in_loop
async def test_an_adapter_that_comes_back_repeats_what_was_not_answered() -> None:
    async with live(f"memory:{uuid.uuid4().hex}") as world:
        adapter = await world.adapter(mediator=QUICK)
        hand = Hand(adapter)
        await hand.init()
        answered = say(world, Address.client("hand"))
        # For those who are there now, and with no end: after a restart only the ledger knows them.
        open_ended = world.append(
            topics.ALERTS_URGENT,
            Message(
                kind=Kind.ALERT,
                source=Address.service("office"),
                destination=Address.to_area(AROUND_HERE),
                priority=Priority.EMERGENCY,
                payload=Attributes({"x": 1}),
            ),
        )
        await until(
            lambda: {m.id for m in hand.messages(Kind.ALERT)} == {answered.id, open_ended.id}
        )
        hand.acknowledge(answered.id)
        await until(lambda: adapter.mediator.outgoing.ended[DeliveryState.ACKNOWLEDGED] == 1)
        port = adapter.port
        await world.stop(adapter)
        hand.received.clear()
        again = await world.adapter(mediator=QUICK, port=port)
        await hand.init(incarnation=2)
        await until(lambda: len(hand.messages(Kind.ALERT)) >= 2)
        assert {message.id for message in hand.messages(Kind.ALERT)} == {open_ended.id}
        check_outgoing(again.mediator.outgoing)
        hand.close()


@in_loop
async def test_what_the_bus_did_not_take_is_not_confirmed_and_taken_when_it_is_repeated() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        events = world.read("events.*")
        honest = adapter.bus.append

        def full(topic: str, *record: object) -> None:
            if topic.startswith("events."):
                raise BusFullError("no space left")
            honest(topic, *record)  # type: ignore[arg-type]

        adapter.bus.append = full  # type: ignore[method-assign, assignment]
        async with connect(adapter, "car", mediator=QUICK) as car:
            message = await car.sense("collision")
            await until(lambda: adapter.dropped["bus-unavailable"] >= 2)
            assert car.mediator.outgoing.waiting == 1
            adapter.bus.append = honest  # type: ignore[method-assign]
            assert await car.taken(message, 5.0) is DeliveryState.ACKNOWLEDGED
            assert len(await poll(events, 1)) == 1


@in_loop
async def test_what_no_version_of_ours_would_write_is_counted_and_harms_nobody() -> None:
    async with live() as world:
        adapter = await world.adapter(mediator=QUICK)
        async with connect(adapter, "car") as car:
            sent = say(world, Address.client("car"), valid_s=60.0)
            assert (await first(car)).id == sent.id
            strange = mercury_pb2.Envelope(version=1, kind=mercury_pb2.RECEIPT, id=bytes(16))
            strange.source.adapter = "another"
            strange.deliveries.message = sent.id.bytes
            strange.deliveries.client.append("car")
            strange.deliveries.state.append(99)
            world.bus.append(topics.DELIVERIES, strange.SerializeToString(), b"key")
            # A policy of a newer version is as good as critical.
            newer = encode(sent) + b"\x60\x63"  # field 12 is 99
            envelope = parse(newer)
            envelope.id = bytes(16)
            world.bus.append(topics.ALERTS_URGENT, envelope.SerializeToString(), b"key")
            world.bus.flush_now()
            await until(lambda: adapter.dropped["bus-malformed"] == 1)
            third = say(world, Address.client("car"))
            await until(lambda: car.counters["received"] >= 2)
            assert third.id
            policies = {one.policy.name for one in adapter.mediator.outgoing}
            assert policies == {"critical"}
