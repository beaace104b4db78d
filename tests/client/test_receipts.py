"""What becomes of a message is known in the end, whoever it was for."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from dataclasses import replace

import pytest
from live import FAR, HERE, NEAR, connect, first, in_loop, iterate, live, until

from mercury import ServiceEndpoint
from mercury.client.receipts import Receipts
from mercury.mediator.ledger import Ledger
from mercury.model import topics
from mercury.model.area import Area, Circle, HeadingSector
from mercury.model.delivery import Delivery, DeliveryState, Reason
from mercury.model.errors import BusError, NotSettledError, RequestError
from mercury.model.message import Address, DeliveryPolicy, Kind, Message
from mercury.session import SessionSettings
from mercury.wire import decode

AWAY = (DeliveryState.UNREACHABLE, Reason.AWAY)
QUICK = SessionSettings(report_interval_s=0.1, heartbeat_interval_s=0.1, init_retry_s=0.05)


def ends(deliveries: dict[str, Delivery]) -> dict[str, tuple[DeliveryState, str]]:
    return {name: (row.state, row.reason) for name, row in deliveries.items()}


@in_loop
async def test_telling_one_who_is_not_here_ends_as_the_ledger_says() -> None:
    async with live() as world:
        adapter = await world.adapter()
        written = world.read(topics.DELIVERIES)
        async with connect(adapter, "abe") as abe:
            begun = time.monotonic()
            told = await abe.tell("nobody-here", {"x": 1}, expires_in_s=0.3)
            assert ends(await told.settled()) == {"nobody-here": AWAY}
            # By the adapter's word, not because nothing was heard.
            assert 0.3 <= time.monotonic() - begun < 1.2
            ledger = Ledger()
            for record in written.poll():
                ledger.add(decode(record.value).payload)
            entry = ledger.get(told.id)
            assert entry is not None
            assert ends(entry.rows) == {"nobody-here": AWAY}
            assert (told.heard, told.is_settled) == ([], True)


@in_loop
async def test_of_two_adapters_the_one_that_had_the_client_has_the_last_word() -> None:
    async with live() as world:
        one, other = await world.adapter(), await world.adapter(id="other")
        written = world.read(topics.DELIVERIES)
        async with connect(one, "abe") as abe, connect(other, "ben") as ben:
            told = await abe.tell("ben", {"x": 1}, expires_in_s=0.3)
            await first(ben)
            assert ends(await told.settled()) == {"ben": (DeliveryState.ACKNOWLEDGED, "")}
            tables = [adapter.mediator.outgoing for adapter in (one, other)]
            await until(lambda: all(table.get(told.id.bytes) is None for table in tables))
            for adapter in (one, other):  # what is out of the table has been written
                await adapter.bus.flush()
            assert told.heard == ["ben"]
            sources = {str(decode(record.value).source) for record in written.poll()}
            assert sources == {"adapter:other"}


@in_loop
async def test_telling_an_empty_group_and_an_empty_area_ends_with_nobody() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe:
            begun = time.monotonic()
            told = [
                await abe.tell(Address.group("empty"), {}, expires_in_s=0.1),
                await abe.tell(None, {}, within_m=10.0, expires_in_s=0.1),
            ]
            with pytest.raises(TimeoutError, match="so far nobody was addressed"):
                await told[0].settled(0.01)
            assert [await one.settled() for one in told] == [{}, {}]
            assert time.monotonic() - begun < 2.0


@in_loop
async def test_receipts_end_with_the_area() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe:
            area = Area(Circle(FAR, 10.0), valid_until_us=time.time_ns() // 1000 + 100_000)
            told = await abe.tell(area, {}, expires_in_s=600.0)
            assert await told.settled(3.0) == {}


@in_loop
async def test_nobody_hears_itself_on_entering_or_coming_back() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe", FAR) as abe, connect(adapter, "ben", HERE) as ben:
            told = await abe.tell(Area(Circle(HERE, 500.0)), {"x": 1}, expires_in_s=60.0)
            assert (await first(ben)).id == told.id
            abe.move(HERE.lat, HERE.lon)
            carl = connect(adapter, "carl", FAR)
            async with carl:
                carl.move(HERE.lat, HERE.lon)  # comes in after abe, and is notified
                assert (await first(carl)).id == told.id
                await until(lambda: "carl" in told.heard)
            assert told.heard == ["ben", "carl"]


@in_loop
async def test_who_joins_a_group_again_gets_what_was_sent_meanwhile() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe, connect(adapter, "ben") as ben:
            await ben.join("blue")
            await ben.leave("blue")
            told = await abe.tell(Address.group("blue"), {"x": 1}, policy="critical")
            await ben.join("blue")
            assert (await first(ben)).id == told.id


@in_loop
async def test_what_the_bus_does_not_take_for_a_moment_is_written_down_later() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe, connect(adapter, "ben") as ben:
            append, refusals = adapter.bus.append, []

            def refuse(topic: str, *record: object) -> None:
                if topic == topics.DELIVERIES and len(refusals) < 3:
                    refusals.append(topic)
                    raise BusError("full")
                append(topic, *record)  # type: ignore[arg-type]

            adapter.bus.append = refuse  # type: ignore[method-assign]
            told = await abe.tell("ben", {"x": 1}, policy="critical", expires_in_s=20.0)
            assert (await first(ben)).id == told.id
            assert ends(await told.settled(10.0)) == {"ben": (DeliveryState.ACKNOWLEDGED, "")}
            assert len(refusals) == 3


@in_loop
async def test_what_never_reached_an_adapter_ends_too() -> None:
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "abe", settings=QUICK) as abe:
            await world.stop(adapter)
            await until(lambda: abe.session.state == "connecting")
            told = await abe.tell("ben", {}, expires_in_s=0.1)
            assert (await abe.why(told.id)).startswith("It is on its way")
            # Of ben nothing is known: it may well be there.
            with pytest.raises(RequestError, match=f"{told.id} ended before an adapter said"):
                await told.settled()
            assert (told.is_settled, told.deliveries) == (True, {})
            assert await abe.why(told.id) == (
                "It expired while there was no session with an adapter."
            )


@in_loop
async def test_fire_and_forget_ends_by_the_word_of_the_adapter_or_without_a_word() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe:
            told = await abe.tell("nobody-here", {}, policy="fire-and-forget", expires_in_s=0.1)
            assert ends(await told.settled()) == {"nobody-here": AWAY}
            group = Address.group("empty")
            told = await abe.tell(group, {}, policy="fire-and-forget", expires_in_s=0.1)
            assert await told.settled() == {}


@in_loop
async def test_a_refusal_of_the_adapter_is_raised() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe:
            told = await abe.tell("ben", {}, expires_in_s=60.0)
            # As an adapter with other rules would answer.
            message = replace(
                told.message, id=uuid.uuid4(), destination=Address.everyone(), topic="x"
            )
            receipts = Receipts(message)
            abe.reception.expect(receipts)
            await abe._say(message)
            with pytest.raises(RequestError, match=f"refused message {message.id}: not-allowed"):
                await receipts.settled(5.0)


def test_what_a_recipient_said_is_not_undone_by_what_another_adapter_says_later() -> None:
    message = Message(
        kind=Kind.CONTENT, source=Address.client("abe"), destination=Address.client("ben"),
        expires_us=time.time_ns() // 1000 + 10**9,
    )  # fmt: skip
    receipts = Receipts(message)
    receipts.update([Delivery("ben", DeliveryState.ACKNOWLEDGED, "", 1, 1, 2, 3)])
    receipts.update([Delivery("ben", *AWAY, settled_us=9)])
    assert receipts.heard == ["ben"]
    assert receipts.is_settled


@in_loop
async def test_alerts_of_a_service_have_receipts() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "near", NEAR) as near, connect(adapter, "far", FAR):
            office = ServiceEndpoint(world.bus, "office")
            sent = await office.alert(HERE, text="Flood", validity_s=30.0)
            assert (await first(near)).id == sent.id
            assert ends(await sent.settled(5.0)) == {"near": (DeliveryState.ACKNOWLEDGED, "")}
            assert sent.heard == ["near"]
            nobody = await office.alert(Address.client("nobody"), validity_s=0.2)
            with pytest.raises(NotSettledError, match=f"message {nobody.id} is not settled after"):
                await nobody.settled(0.01)
            assert ends(await nobody.settled()) == {"nobody": AWAY}
            empty = await office.alert(Address.group("empty"), validity_s=0.1, policy="repeat")
            assert await empty.settled() == {}
            late = await office.alert(Address.group("empty"), validity_s=60.0)
        waiting = asyncio.create_task(late.settled())
        await iterate()
    with pytest.raises(BusError, match="the bus was closed"):
        await waiting


@in_loop
async def test_a_client_asks_what_became_of_its_messages() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with (
            connect(adapter, "abe", NEAR) as abe,
            connect(adapter, "ben", FAR) as ben,
            connect(adapter, "cal", HERE, heading_deg=270.0) as cal,
        ):
            told = await abe.tell("ben", {"x": 1})
            await told.settled(5.0)
            said = await abe.why(told.id)
            assert said.startswith("ben acknowledged it at ")
            assert " UTC, " in said
            assert (await ben.why(str(told.id))).startswith("ben acknowledged it at ")
            with pytest.raises(RequestError, match=f"{told.id} is neither from cal nor for it"):
                await cal.why(told.id)
            with pytest.raises(RequestError, match="on the bus in the last hour"):
                await abe.why(uuid.UUID(int=told.id.int + 1))
            office = ServiceEndpoint(world.bus, "office")
            east = Area(Circle(HERE, 500.0), HeadingSector(90.0, 45.0))
            flood = await office.alert(east, kind="flood", validity_s=60.0)
            await flood.settled(5.0)
            reports = adapter.counters["reports"]
            cal.move(HERE.lat, HERE.lon, heading_deg=270.0, report=True)
            ben.move(FAR.lat, FAR.lon, report=True)
            await until(lambda: adapter.counters["reports"] >= reports + 2)
            await adapter.bus.flush()
            assert (await abe.why(flood.id)).startswith("abe acknowledged it at ")
            whereabouts = r"(none of its .* was inside|its only report, .* was outside) the area"
            assert re.match(f"ben was not addressed: {whereabouts}", await ben.why(flood.id))
            assert "heading 270°, and the message is for headings of 90° ± 45° only" in (
                await cal.why(flood.id)
            )
            # The office reads the bus itself.
            assert (await office.why(flood.id)).startswith("1 was addressed: 1 acknowledged it")
            assert (
                await office.why(told.id, "cal")
            ) == "cal was not addressed: it was for ben alone."
            with pytest.raises(RequestError, match="on the bus in the last hour"):
                await office.why(uuid.UUID(int=told.id.int + 1))


@in_loop
async def test_what_a_client_sensed_leads_to_the_alert_that_it_became() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "abe") as abe:
            sensed = await abe.sense("emergency", policy="repeat")
            alert = await first(abe)
            await abe.taken(sensed, 5.0)
            assert (await abe.why(sensed.id)).endswith(
                f"It became the alert {alert.id}: ask for that one."
            )
            published = await abe.publish("fuel", {"price": 1.5})
            assert (await abe.why(published.id)).startswith(
                "Content goes to whoever has subscribed"
            )


@in_loop
async def test_to_explain_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercury.broker.explanations._MOST_RECORDS", 3)
    async with live() as world:
        adapter = await world.adapter()
        broker = await world.broker()
        async with connect(adapter, "abe") as abe, connect(adapter, "ben"):
            told = [await abe.tell("ben", {"n": number}) for number in range(4)]
            for one in told:
                await one.settled(5.0)
            with pytest.raises(RequestError, match="too much went over the bus"):
                await abe.why(told[-1].id)
            assert broker.explanations.begin(b"1")
            assert not broker.explanations.begin(b"1")  # repeated: it is being answered
            for number in range(16):
                broker.explanations.begin(bytes([number, 0]))
            with pytest.raises(RequestError, match="too many ask at once"):
                await abe.why(told[0].id)


@in_loop
async def test_who_lost_its_session_says_when_it_is_connected_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mercury.client.connection")
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "car", settings=QUICK) as car:
            port = adapter.port
            await world.stop(adapter)
            await until(lambda: car.session.state == "connecting")
            await world.adapter(port=port, session=QUICK)
            await car.connected(5.0)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["car lost its session: the adapter stops", "car is connected again"]


@in_loop
async def test_what_an_adapter_left_open_when_it_died_has_ended_with_the_message() -> None:
    long_ago_us = time.time_ns() // 1000 - 10**7
    waiting, ended = DeliveryState.WAITING, (DeliveryState.EXPIRED, Reason.NOT_ACKNOWLEDGED)
    message = Message(
        kind=Kind.CONTENT, source=Address.client("abe"), destination=Address.group("all"),
        expires_us=long_ago_us, policy=DeliveryPolicy.REPEAT,
    )  # fmt: skip
    to_group = Receipts(message)
    to_group.update([Delivery("ben", waiting, tries=2), Delivery("cid", waiting)])
    assert ends(await to_group.settled()) == {"ben": ended, "cid": AWAY}
    assert {row.settled_us for row in to_group.deliveries.values()} == {long_ago_us}
    to_one = Receipts(replace(message, destination=Address.client("ben")))
    to_one.is_taken = True
    assert ends(await to_one.settled()) == {"ben": AWAY}


@in_loop
async def test_handlers_hear_no_answers_to_what_the_client_asked() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        heard: list[str] = []
        async with connect(adapter, "car") as car, connect(adapter, "ben", groups=["blue"]) as ben:
            car.on()(lambda message: heard.append(message.kind.name))
            await car.echo()
            await car.query(HERE)
            await car.subscribe("fuel")
            told = await car.tell(Address.group("blue"), {"x": 1}, policy="critical")
            await first(ben)
            await told.settled(5.0)
            await car.why(told.id)
            await ben.tell("car", {"x": 2})
            await first(car)
            assert heard == ["CONTENT"]
