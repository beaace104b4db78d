"""A client and its session: connecting, moving, hearing, and coming back."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from live import FAR, HERE, NEAR, Hand, Live, connect, first, in_loop, iterate, live, until
from mediator.invariants import check_outgoing

import mercury
from mercury.mediator.ledger import Ledger
from mercury.model import topics
from mercury.model.area import Area, Circle, HeadingSector
from mercury.model.delivery import DeliveryState
from mercury.model.errors import (
    AddressInUseError,
    AreaError,
    ConfigurationError,
    MessageTooLargeError,
    NotConnectedError,
    RequestError,
    SessionRefusedError,
)
from mercury.model.message import Address, Event, Kind, Message, Subscription
from mercury.net import UdpEndpoint, bind_udp, to_sockaddr
from mercury.service import now
from mercury.session import SessionSettings, SessionState
from mercury.wire import decode, encode
from mercury.wire.packet import HEADER_BYTES, pack

QUICK = SessionSettings(
    report_interval_s=0.1, heartbeat_interval_s=0.1, missed_reports=50, init_retry_s=0.05
)


def alert(text: str, to: Address | None = None, **fields: object) -> Message:
    return Message(
        kind=Kind.ALERT,
        source=Address.broker("test"),
        destination=to or Address.everyone(),
        priority=7,
        payload=Event("notice", text=text),
        **fields,  # type: ignore[arg-type]
    )


def tell(world: Live, text: str, to: Address | None = None) -> Message:
    return world.append(topics.ALERTS_URGENT, alert(text, to))


@in_loop
async def test_a_client_connects_moves_and_says_goodbye() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car", HERE, speed_mps=5.0) as car:
            assert car.session.state == "established"
            assert car.position == HERE
            table = adapter.sessions.table
            session = table.by_identity["car"]
            reported = table.last_report[session.slot]
            car.move(NEAR.lat, NEAR.lon, heading_deg=90.0, speed_mps=7.0, report=True)
            await until(lambda: table.last_report[session.slot] > reported)
            assert table.lat[session.slot] == NEAR.lat
            assert (table.heading[session.slot], table.speed[session.slot]) == (90.0, 7.0)
        await until(lambda: adapter.statistics().counters.get("sessions_closed") == 1)
        with pytest.raises(NotConnectedError):
            car.move(0.0, 0.0, report=True)


@in_loop
async def test_reports_go_out_by_themselves() -> None:
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "car", settings=QUICK) as car:
            car.move(FAR.lat, FAR.lon)
            table = adapter.sessions.table
            slot = table.by_identity["car"].slot
            for _ in range(3):
                before = table.last_report[slot]
                await until(lambda before=before: table.last_report[slot] > before)
            assert table.lat[slot] == FAR.lat


@in_loop
async def test_messages_are_iterated_over_most_urgent_first() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            tell(world, "hello")
            async for message in car:
                assert message.event.text == "hello"
                break


@in_loop
async def test_iteration_ends_when_the_client_closes() -> None:
    async with live() as world:
        adapter = await world.adapter()
        car = connect(adapter, "car")

        async def all_of_it() -> list[Message]:
            return [message async for message in car]

        async with car:
            reader = asyncio.create_task(all_of_it())
            tell(world, "last")
            await until(lambda: car.counters["received"] == 1)
        assert [message.event.text for message in await reader] == ["last"]


@in_loop
async def test_handlers_plain_and_async_hear_their_kind(caplog: pytest.LogCaptureFixture) -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        heard: list[str] = []
        async with connect(adapter, "car") as car:

            @car.on(Kind.ALERT)
            def broken(message: Message) -> None:
                raise RuntimeError("a handler's own bug")

            @car.on(Kind.ALERT)
            async def broken_later(message: Message) -> None:
                await iterate()
                raise RuntimeError("another bug")

            @car.on(Kind.ALERT)
            def plain(message: Message) -> None:
                heard.append("plain")

            @car.on(Kind.ALERT)
            async def later(message: Message) -> None:
                await iterate()
                heard.append("async")

            @car.on()
            def everything(message: Message) -> None:
                heard.append(message.kind.name)

            with caplog.at_level(logging.CRITICAL + 1):
                tell(world, "x")
                await until(lambda: len(heard) == 3)
            assert sorted(heard) == ["ALERT", "async", "plain"]
            await car.echo()
            tell(world, "end")
            await until(lambda: len(heard) == 6)
            assert "REPLY" not in heard  # who asked has it


@in_loop
async def test_a_handler_may_close_the_client() -> None:
    async with live() as world:
        adapter = await world.adapter()
        car = connect(adapter, "car")
        closed = asyncio.Event()
        async with car:

            @car.on(Kind.ALERT)
            async def leave(message: Message) -> None:
                await car.close()
                closed.set()

            tell(world, "go home")
            async with asyncio.timeout(5.0):
                await closed.wait()
            await until(lambda: adapter.statistics().gauges["sessions"] == 0)


@in_loop
async def test_a_client_checks_itself_whether_an_area_concerns_it() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car", HERE, heading_deg=270.0) as car:
            here, east = Area(Circle(HERE, 500.0)), HeadingSector(90.0, 45.0)
            session = adapter.sessions.table.by_identity["car"]
            # The adapter sends these as if the client were inside; the client knows better.
            for area in (Area(Circle(FAR, 500.0)), Area(here.shape, east), here):
                body = encode(alert("x", Address.to_area(area)))
                adapter.mediator.send_body(session, Kind.ALERT, 9, body, 0, now())
            adapter._send_queued()
            assert (await first(car)).destination.area == here
            assert car.dropped == {"outside-area": 2}


@in_loop
async def test_doubles_and_expired_messages_are_dropped() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            message = alert("once")
            late = alert("late", expires_us=time.time_ns() // 1000 - 1)
            for one in (message, message, late, alert("end")):
                session = adapter.sessions.table.by_identity["car"]
                adapter.mediator.send_body(session, Kind.ALERT, 7, encode(one), 0, now())
            adapter._send_queued()
            assert [(await first(car)).event.text for _ in range(2)] == ["once", "end"]
            assert car.dropped == {"repeated": 1, "expired": 1}


@in_loop
async def test_a_client_whose_address_changes_is_followed() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as car:
            assert car._endpoint is not None
            old = car._endpoint.address
            car._endpoint.close()  # as when the network gives a new address
            car._endpoint = UdpEndpoint(bind_udp("127.0.0.1", 0), car._on_packets)
            assert car._endpoint.address != old
            assert await car.echo() > 0
            tell(world, "found you")
            assert (await first(car)).event.text == "found you"
            assert adapter.statistics().counters["address_changes"] == 1
            assert car.session.sessions_opened == 1


@in_loop
async def test_after_a_restart_of_the_adapter_everything_goes_on() -> None:
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        await world.broker()
        async with connect(adapter, "car", settings=QUICK) as car:
            fuel = await car.subscribe("fuel", where="price < 2")
            port = adapter.port
            await world.stop(adapter)
            adapter = await world.adapter(port=port, session=QUICK)
            await until(lambda: car.session.sessions_opened == 2)
            await until(lambda: adapter.statistics().gauges["subscriptions"] == 1)
            assert await car.echo() > 0
            await car.publish("fuel", {"price": 1.5})
            assert (await first(fuel)).values == {"price": 1.5}


@in_loop
async def test_what_is_sent_without_a_session_waits_for_one() -> None:
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        await world.broker()
        async with connect(adapter, "car", settings=QUICK) as car:
            port = adapter.port
            await world.stop(adapter)
            await until(lambda: car.session.state == "connecting")
            echo = asyncio.create_task(car.echo(timeout_s=10.0))
            with pytest.raises(NotConnectedError, match="car has no session now"):
                car.move(0.0, 0.0, report=True)
            await world.adapter(port=port, session=QUICK)
            assert await echo > 0


@in_loop
async def test_no_adapter_is_a_clear_error() -> None:
    with bind_udp("127.0.0.1", 0) as silent:
        port = silent.getsockname()[1]
        client = mercury.connect(
            f"udp://127.0.0.1:{port}", identity="car", position=(0.0, 0.0), connect_timeout_s=0.05
        )
        sentence = rf"no answer from the adapter at udp://127.0.0.1:{port} within 0.05 s"
        with pytest.raises(NotConnectedError, match=sentence):
            async with client:
                pass


@in_loop
async def test_to_speak_before_opening_or_after_closing_is_a_clear_error() -> None:
    async with live() as world:
        adapter = await world.adapter()
        car = connect(adapter, "car")

        async def speak(sentence: str) -> None:
            for saying in (
                car.tell("ben", {"x": 1}),
                car.sense("emergency", policy="critical"),
                car.publish("fuel", {"price": 1.5}),
            ):
                with pytest.raises(NotConnectedError, match=sentence):
                    async with asyncio.timeout(1.0):
                        await saying

        await speak("car is not open: use `async with`")
        async with car:
            pass
        await speak("car was closed")
        assert len(car.mediator.outgoing) == 0


@in_loop
async def test_of_two_clients_with_one_identity_the_newer_stays_and_the_other_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mercury.client.connection")
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "car-7", settings=QUICK) as older:
            async with connect(adapter, "car-7", settings=QUICK) as newer:
                await until(lambda: older.session.state == "connecting")
                with pytest.raises(SessionRefusedError, match="another client is connected"):
                    await older.connected(0.5)
                assert (newer.session.state, newer.session.sessions_opened) == ("established", 1)
                assert adapter.statistics().counters["sessions_opened"] == 2
            await older.connected(5.0)
    assert [record.getMessage() for record in caplog.records] == [
        "car-7 lost its session: another client is connected under this name",
        "car-7 is connected again",
    ]


@in_loop
async def test_a_refusal_is_a_clear_error() -> None:
    async with live() as world:
        adapter = await world.adapter(session=SessionSettings(max_sessions=1))
        async with connect(adapter, "first"):
            with pytest.raises(SessionRefusedError, match="sessions-full") as caught:
                async with connect(adapter, "second", connect_timeout_s=0.2):
                    pass
            assert caught.value.reason == "sessions-full"
        with pytest.raises(SessionRefusedError, match="no-telemetry"):
            async with connect(adapter, "nowhere", None, connect_timeout_s=0.2):
                pass


@in_loop
async def test_bad_arguments_are_clear_errors() -> None:
    with pytest.raises(ConfigurationError, match="expected udp://HOST:PORT"):
        async with mercury.connect("http://x", identity="car", position=(0.0, 0.0)):
            pass
    with pytest.raises(AreaError, match="latitude 91"):
        mercury.connect("udp://127.0.0.1:7400", identity="car", position=(91.0, 0.0))
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            with pytest.raises(AreaError):
                car.move(float("nan"), 0.0)
            with pytest.raises(MessageTooLargeError, match="at most 65475"):
                await car.publish("fuel", {"x": b"x" * 65_500})


@in_loop
async def test_a_message_that_is_too_large_is_refused_and_not_kept() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            with pytest.raises(MessageTooLargeError, match="at most 65475"):
                await car.tell("ben", {"x": "y" * 70_000}, policy="critical")
            assert (len(car.mediator.outgoing), car.counters["sent"]) == (0, 0)


@in_loop
async def test_a_taken_relay_port_is_a_clear_error_and_leaves_nothing_open() -> None:
    async with live() as world:
        adapter = await world.adapter()
        with bind_udp("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]
            car = connect(adapter, "car", relay_port=port)
            with pytest.raises(AddressInUseError, match=f"UDP port {port}"):
                async with car:
                    pass
        assert car._endpoint is None
        assert adapter.statistics().counters.get("sessions_opened", 0) == 0


@in_loop
async def test_a_request_without_a_reply_is_a_clear_error() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            with pytest.raises(RequestError, match="no reply to 'echo' within 0.05 s"):
                await car.echo(timeout_s=0.05)
            waiting = asyncio.create_task(car.echo())
            await until(lambda: len(car.reception.replies) == 1)
        with pytest.raises(NotConnectedError, match="car was closed"):
            await waiting
        with pytest.raises(NotConnectedError):
            await car.echo()


@in_loop
async def test_packets_that_are_not_the_adapters_do_no_harm() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as car:
            stranger = Hand(adapter)
            assert car._endpoint is not None
            stranger._to = to_sockaddr(*car._endpoint.address)
            forged = pack(Kind.ALERT, 9, b"\xff" * 16, 1, encode(alert("forged")))
            mine = pack(Kind.ALERT, 9, car.session.token, 3, encode(alert("mine"))[:-3])
            stranger.raw(b"", b"garbage", forged, mine, forged[: HEADER_BYTES + 2])
            await until(lambda: sum(car.session.dropped.values()) == 5)
            assert car.session.dropped["unknown-session"] == 1
            assert await car.echo() > 0
            assert len(car.inbox) == 0
            stranger.close()


@in_loop
async def test_an_emergency_is_heard_where_it_matters() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with (
            connect(adapter, "witness", HERE, speed_mps=10.0) as witness,
            connect(adapter, "near", NEAR) as near,
            connect(adapter, "far", FAR) as far,
        ):
            sent = await witness.sense("emergency", text="crash")
            for client in (witness, near):
                heard = await first(client)
                assert heard.correlation == sent.id
                assert heard.event.text == "crash"
            assert [one["text"] for one in await far.query(HERE)] == ["crash"]
            assert await far.query(FAR, radius_m=100.0) == []
            assert len(far.inbox) == 0


@in_loop
async def test_an_adapter_that_stops_says_goodbye() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as client:
            await world.stop(adapter)
            # At once, not after three silent heartbeat intervals.
            await until(lambda: client.session.state is SessionState.CONNECTING, timeout_s=3.0)


@in_loop
async def test_the_number_of_subscriptions_is_bounded() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as client:
            for number in range(256):
                subscription = Subscription(number.to_bytes(16, "big"), "fuel")
                await client.send(client.compose(Kind.SUBSCRIBE, "fuel", subscription))
            await until(lambda: adapter.statistics().gauges["subscriptions"] == 256)
            with pytest.raises(RequestError, match="256 subscriptions are the most"):
                await client.subscribe("fuel")


@in_loop
async def test_an_alert_for_where_the_client_no_longer_is_waits_for_its_return() -> None:
    async with live() as world:
        rare = SessionSettings(report_interval_s=60.0)  # no report in between
        adapter = await world.adapter(session=rare)
        async with (
            connect(adapter, "car", HERE, settings=rare) as car,
            mercury.ServiceEndpoint(world.bus, "office") as office,
        ):
            car.move(FAR.lat, FAR.lon)  # of which the adapter has not heard
            await office.alert(HERE, text="crash", radius_m=500.0)
            await until(lambda: car.reception._elsewhere)
            assert (len(car.inbox), car.dropped) == (0, {})
            car.move(FAR.lat, FAR.lon)
            assert len(car.inbox) == 0
            car.move(HERE.lat, HERE.lon)
            assert (await first(car)).event.text == "crash"
            car.move(NEAR.lat, NEAR.lon)
            assert len(car.inbox) == 0  # once


@in_loop
async def test_the_receipt_of_an_alert_that_waits_for_a_return_is_true_all_the_time() -> None:
    async with live() as world:
        rare = SessionSettings(report_interval_s=60.0)  # no report in between
        adapter = await world.adapter(session=rare)
        written = world.read(topics.DELIVERIES)
        async with mercury.ServiceEndpoint(world.bus, "office") as office:
            async with connect(adapter, "car", HERE, settings=rare) as car:
                car.move(FAR.lat, FAR.lon)  # of which the adapter has not heard
                returns = await office.alert(HERE, text="crash", radius_m=500.0)
                row = (await returns.settled(5.0))["car"]
                assert (row.state, row.reason) == (DeliveryState.REFUSED, "outside-area")
                assert returns.id.bytes not in car.session._seen
                car.move(HERE.lat, HERE.lon)
                assert (await first(car)).event.text == "crash"
                assert returns.id.bytes in car.session._seen
                car.move(FAR.lat, FAR.lon)
                stays = await office.alert(HERE, text="ice", radius_m=500.0)
                await until(lambda: len(car.reception._elsewhere) == 1)
            ledger = Ledger()

            def ends() -> list[tuple[DeliveryState, str, int]]:
                for record in written.poll():
                    ledger.add(decode(record.value).payload)
                rows = [ledger.get(one.id).rows["car"] for one in (returns, stays)]
                return [(row.state, row.reason, row.tries) for row in rows]

            await until(lambda: adapter.statistics().counters.get("sessions_closed") == 1)
            await until(lambda: len(adapter.mediator.outgoing._with_changes) == 0)
            await adapter.bus.flush()
            # What was handed over was acknowledged; nothing was repeated meanwhile.
            assert ends() == [
                (DeliveryState.ACKNOWLEDGED, "", 1),
                (DeliveryState.REFUSED, "outside-area", 1),
            ]
            check_outgoing(adapter.mediator.outgoing)
