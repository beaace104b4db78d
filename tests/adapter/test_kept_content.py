"""Content survives what happens between its publisher and its subscribers."""

from __future__ import annotations

import pytest
from live import FAR, HERE, NEAR, Hand, Live, connect, first, in_loop, iterate, live, poll, until

from mercury.adapter import Adapter
from mercury.adapter.kept_content import CONTENT_KEPT_US, MAX_OWED, Content, KeptContent
from mercury.client import Client
from mercury.config.mediator import MediatorSettings, RuleSettings
from mercury.model import topics
from mercury.model.delivery import DeliveryState
from mercury.model.message import Address, Attributes, Kind, Message, Subscription
from mercury.service import now_us
from mercury.session import SessionSettings
from mercury.wire import decode, mercury_pb2

QUICK = SessionSettings(init_retry_s=0.05, init_retry_max_s=0.1)
FUEL, TOLL = b"fuel", b"toll"
LONG_US = 10**15


def content(number: int, *, appended_us: int | None = None, until_us: int = LONG_US) -> Content:
    envelope = mercury_pb2.Envelope(id=b"%d" % number)
    return Content(envelope, b"", None, number if appended_us is None else appended_us, until_us)


def ids(owed: list[Content]) -> list[int]:
    return [int(one.envelope.id) for one in owed]


def test_what_was_not_heard_since_is_owed_in_the_order_of_the_bus() -> None:
    kept = KeptContent()
    for number in range(10):
        kept.add(content(number), [FUEL if number % 2 else TOLL], 0)
    assert ids(kept.owed(FUEL, 0, (), 0)) == [1, 3, 5, 7, 9]
    assert ids(kept.owed(FUEL, 3, {b"5", b"7"}, 0)) == [3, 9]
    assert kept.owed(b"other", 0, (), 0) == []


def test_content_that_is_matched_again_is_new_only_to_other_interests() -> None:
    kept = KeptContent()
    assert kept.add(content(1), [FUEL], 0) == {FUEL}
    assert kept.add(content(1), [FUEL], 0) == set()
    assert kept.add(content(1), [FUEL, TOLL], 0) == {TOLL}
    assert len(kept) == len(kept.owed(FUEL, 0, (), 0)) == len(kept.owed(TOLL, 0, (), 0)) == 1


def test_what_is_over_is_not_owed_and_soon_forgotten() -> None:
    kept = KeptContent()
    kept.add(content(1, until_us=100), [FUEL], 0)
    kept.add(content(2), [FUEL, TOLL], 0)
    assert ids(kept.owed(FUEL, 0, (), 100)) == [2]
    kept.expire(CONTENT_KEPT_US + 1)
    assert ids(kept.owed(FUEL, 0, (), 0)) == [2]
    kept.expire(CONTENT_KEPT_US + 2)
    assert len(kept) == 0
    assert kept._by_interest == {}


def test_memory_and_work_are_bounded() -> None:
    kept = KeptContent(max_messages=MAX_OWED + 10)
    for number in range(MAX_OWED + 100):
        kept.add(content(number), [FUEL], 0)
    assert len(kept) == MAX_OWED + 10
    owed = ids(kept.owed(FUEL, 0, (), 0))
    assert owed == list(range(100, MAX_OWED + 100))  # the newest


async def publish(world: Live, *prices: float, policy: int = 0) -> list[Message]:
    """Publish content and wait until a broker has matched it."""
    matched = world.read(topics.MATCHED_CONTENT)
    sent = [
        world.append(
            topics.content_topic("fuel"),
            Message(
                kind=Kind.CONTENT,
                source=Address.client("station"),
                destination=Address.broker(),
                topic="fuel",
                payload=Attributes({"price": price}, HERE),
                policy=policy,  # type: ignore[arg-type]
            ),
        )
        for price in prices
    ]
    await poll(matched, len(sent))
    matched.close()
    return sent


def end_session(adapter: Adapter, client: Client) -> None:
    """As if the client had not been heard for long."""
    session = adapter.sessions.table.by_identity[client.identity]
    adapter.sessions.table.remove(session)
    adapter._forget(session)


async def back(client: Client) -> None:
    """Let a client find out that its session has ended, and wait for the new one."""
    opened = client.session.sessions_opened
    client.move(HERE.lat, HERE.lon, report=True)
    await until(lambda: client.session.sessions_opened > opened)


@in_loop
async def test_a_subscriber_that_was_away_gets_what_it_missed_once() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car", settings=QUICK) as car:
            stream = await car.subscribe("fuel", where="price < 1.6")
            [before] = await publish(world, 1.0)
            assert (await first(stream)).id == before.id
            end_session(adapter, car)
            missed = await publish(world, 1.1, 1.2)
            await back(car)
            assert [(await first(stream)).id for _ in missed] == [one.id for one in missed]
            [after] = await publish(world, 1.3)
            assert (await first(stream)).id == after.id
            assert len(stream.inbox) == 0


@in_loop
async def test_a_new_subscription_gets_nothing_of_the_past() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car", settings=QUICK) as car:
            early = await car.subscribe("fuel")
            [old] = await publish(world, 1.0)
            assert (await first(early)).id == old.id
            late = await car.subscribe("fuel")
            [new] = await publish(world, 1.1)
            assert (await first(late)).id == new.id


@in_loop
async def test_what_was_matched_while_the_adapter_was_away_arrives() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with (
            connect(adapter, "car", settings=QUICK) as car,
            connect(adapter, "app", settings=QUICK, relay_port=0) as host,
        ):
            assert host.relay is not None
            stream = await car.subscribe("fuel")
            near = await car.subscribe("fuel", near_m=1000.0)
            async with connect_app(host) as app:
                relayed = await app.subscribe("fuel")
                port = adapter.port
                await world.stop(adapter)
                sent = await publish(world, 1.0, 1.1)
                again = await world.adapter(port=port)
                for one in (stream, near, relayed):
                    assert [(await first(one)).id for _ in sent] == [one.id for one in sent]
                assert len(again.content) == 2


def connect_app(host: Client) -> Client:
    assert host.relay is not None
    return Client(f"udp://127.0.0.1:{host.relay.port}", identity="one")


@in_loop
async def test_what_is_not_near_any_more_is_not_owed() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car", settings=QUICK) as car:
            near = await car.subscribe("fuel", near_m=1000.0)
            end_session(adapter, car)
            await publish(world, 1.0)
            car.move(FAR.lat, FAR.lon)
            addressed = adapter.counters["addressed"]
            await until(lambda: car.session.sessions_opened == 2)
            await until(lambda: len(adapter.interests) == 1)
            assert adapter.counters["addressed"] == addressed
            assert len(near.inbox) == 0


@in_loop
async def test_content_that_a_broker_matched_twice_is_sent_once() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as car:
            stream = await car.subscribe("fuel")
            matched = world.read(topics.MATCHED_CONTENT)
            [sent] = await publish(world, 1.0)
            [record] = await poll(matched, 1)
            world.bus.append(topics.MATCHED_CONTENT, record.value, record.key, record.headers)
            world.bus.flush_now()
            await until(lambda: adapter.dropped["repeated-content"] == 1)
            assert (await first(stream)).id == sent.id
            assert len(stream.inbox) == 0
            assert car.dropped["repeated"] == 0


@in_loop
async def test_content_with_a_policy_is_repeated_until_a_subscriber_has_it() -> None:
    rules = {"fuel": RuleSettings(policy="repeat", resend_after_s=0.1)}
    async with live() as world:
        adapter = await world.adapter(mediator=MediatorSettings(rules=rules))  # type: ignore[arg-type]
        await world.broker()
        receipts = world.read(topics.DELIVERIES)
        hand = Hand(adapter)
        await hand.init(NEAR)
        hand.say(Kind.SUBSCRIBE, Subscription(bytes(16), "fuel"))
        await hand.next(Kind.REPLY)
        [sent] = await publish(world, 1.0)
        await until(lambda: len(hand.messages(Kind.CONTENT)) >= 3)
        assert {message.id for message in hand.messages(Kind.CONTENT)} == {sent.id}
        hand.acknowledge(sent.id)
        ended = adapter.mediator.outgoing.ended
        await until(lambda: ended[DeliveryState.ACKNOWLEDGED] == 1)
        await until(lambda: len(adapter.mediator.outgoing) == 0)  # nothing is kept of it
        await iterate()
        assert receipts.poll() == []  # it is in no ledger
        hand.close()


@pytest.mark.parametrize("length", [0, 800, 1100])
@in_loop
async def test_what_a_renewed_subscription_lists_fits_a_packet(length: int) -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        requests = world.read(topics.REQUESTS)
        where = "price < 1.6" if not length else f'brand != "{"x" * length}"'
        async with connect(adapter, "car", settings=QUICK) as car:
            stream = await car.subscribe("fuel", where=where)
            sent = await publish(world, *[1.0] * 50) if not length else []
            for _ in sent:
                await first(stream)
            end_session(adapter, car)
            before = now_us()
            await back(car)
            [_, renewed] = [decode(one.value).payload for one in await poll(requests, 2)]
            assert isinstance(renewed, Subscription)
            assert 0 < renewed.since_us <= before
            assert len(renewed.heard) == 16 * min(len(sent), 32)
