"""Alerts from the bus to the clients of an adapter, over real sockets: who gets what, and once."""

from __future__ import annotations

import time
from dataclasses import replace

from live import FAR, HERE, NEAR, Hand, Live, connect, first, in_loop, live, until

from mercury.model import topics
from mercury.model.area import Area, Circle, HeadingSector, Position
from mercury.model.message import Address, Event, Kind, Message, Priority, Telemetry
from mercury.service import now
from mercury.session import SessionSettings
from mercury.wire import encode

AROUND_HERE = Circle(HERE, 500.0)


def now_us() -> int:
    return time.time_ns() // 1000


def alert(
    to: Address | Area,
    text: str = "crash",
    *,
    priority: int = Priority.EMERGENCY,
    until_s: float = 0,
) -> Message:
    return Message(
        kind=Kind.ALERT,
        source=Address.broker("test"),
        destination=Address.to_area(to) if isinstance(to, Area) else to,
        priority=priority,
        expires_us=now_us() + int(until_s * 1e6) if until_s else 0,
        payload=Event("emergency", HERE, text=text),
    )


def tell(world: Live, message: Message) -> Message:
    return world.append(topics.alerts_topic(message.priority), message)


@in_loop
async def test_an_area_alert_reaches_those_inside_and_nobody_else() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "in", NEAR) as inside, connect(adapter, "out", FAR) as outside:
            sent = tell(world, alert(Area(AROUND_HERE)))
            tell(world, alert(Address.everyone(), "for all"))
            assert (await first(inside)).id == sent.id
            assert (await first(inside)).event.text == "for all"
            assert (await first(outside)).event.text == "for all"
            assert outside.dropped == {}  # it was not even sent
            assert len(inside.inbox) == len(outside.inbox) == 0


@in_loop
async def test_only_one_side_of_the_road_is_alerted() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with (
            connect(adapter, "east", HERE, heading_deg=85.0) as eastbound,
            connect(adapter, "west", HERE, heading_deg=265.0) as westbound,
        ):
            tell(world, alert(Area(AROUND_HERE, HeadingSector(90.0, 30.0))))
            tell(world, alert(Address.everyone(), "for all"))
            assert (await first(eastbound)).event.text == "crash"
            assert (await first(westbound)).event.text == "for all"


@in_loop
async def test_an_alert_to_one_client_reaches_it_alone() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "one") as one, connect(adapter, "two") as two:
            tell(world, alert(Address.client("one"), "for one"))
            tell(world, alert(Address.client("nobody here"), "for nobody"))
            tell(world, alert(Address.everyone(), "for all"))
            assert (await first(one)).event.text == "for one"
            assert (await first(one)).event.text == "for all"
            assert (await first(two)).event.text == "for all"


@in_loop
async def test_alerts_that_waited_go_out_by_priority() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter)
        await hand.init()
        for priority in (1, 4, 6, 7, 9):
            message = alert(Address.everyone(), str(priority), priority=priority)
            world.bus.append(topics.alerts_topic(priority), encode(message))
        world.bus.flush_now()
        await until(lambda: len(hand.messages(Kind.ALERT)) == 5)
        order = [message.event.text for message in hand.messages(Kind.ALERT)]
        assert order == ["9", "7", "6", "4", "1"]
        hand.close()


@in_loop
async def test_an_alert_outside_the_coverage_is_dropped() -> None:
    async with live() as world:
        adapter = await world.adapter(coverage=Area(Circle(HERE, 2000.0)))
        async with connect(adapter, "car", FAR) as car:
            tell(world, alert(Area(Circle(FAR, 100.0)), "far away", until_s=60))
            tell(world, alert(Address.everyone(), "for all"))
            assert (await first(car)).event.text == "for all"
            assert adapter.statistics().dropped == {"outside-coverage": 1}
            assert adapter.statistics().gauges["standing_alerts"] == 0
            tell(world, alert(Area(Circle(FAR, 14_500.0)), "reaches in", until_s=60))
            assert (await first(car)).event.text == "reaches in"


@in_loop
async def test_two_adapters_serve_their_own_coverage_from_one_bus() -> None:
    async with live() as world:
        south = await world.adapter(id="south", coverage=Area(Circle(HERE, 2000.0)))
        north = await world.adapter(id="north", coverage=Area(Circle(FAR, 2000.0)))
        async with connect(south, "here", HERE) as here, connect(north, "far", FAR) as far:
            tell(world, alert(Area(Circle(HERE, 100.0)), "here", until_s=60))
            tell(world, alert(Area(Circle(FAR, 100.0)), "far", until_s=60))
            tell(world, alert(Area(Circle(HERE, 20_000.0)), "both", until_s=60))
            assert [(await first(here)).event.text for _ in range(2)] == ["here", "both"]
            assert [(await first(far)).event.text for _ in range(2)] == ["far", "both"]
            assert (
                south.statistics().dropped == north.statistics().dropped == {"outside-coverage": 1}
            )


@in_loop
async def test_a_standing_alert_reaches_those_who_enter_and_those_who_connect() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "driver", FAR) as driver:
            sent = tell(world, alert(Area(AROUND_HERE), until_s=60))
            await until(lambda: adapter.statistics().gauges["standing_alerts"] == 1)
            driver.move(NEAR.lat, NEAR.lon, report=True)
            assert (await first(driver)).id == sent.id
            async with connect(adapter, "newcomer", HERE) as newcomer:
                assert (await first(newcomer)).id == sent.id
            for place in (FAR, HERE, NEAR):
                driver.move(place.lat, place.lon, report=True)
            tell(world, alert(Address.client("driver"), "end"))
            assert (await first(driver)).event.text == "end"
        assert adapter.statistics().counters["alerts_on_entry"] == 2


@in_loop
async def test_a_standing_alert_waits_for_its_time() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "parked", HERE) as parked:
            begins_us = now_us() + 300_000
            area = Area(AROUND_HERE, valid_from_us=begins_us, valid_until_us=begins_us + 60_000_000)
            tell(world, alert(area))
            await until(lambda: adapter.statistics().gauges["standing_alerts"] == 1)
            assert (await first(parked)).event.text == "crash"
            assert now_us() >= begins_us


@in_loop
async def test_an_alert_that_is_over_is_not_sent_and_a_repeated_one_only_once() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            tell(world, replace(alert(Area(AROUND_HERE), "over"), expires_us=now_us() - 1))
            over = Area(AROUND_HERE, valid_until_us=now_us() - 1)
            tell(world, alert(over, "over"))
            message = tell(world, alert(Area(AROUND_HERE), until_s=60))
            tell(world, message)
            tell(world, alert(Address.client("car"), "end"))
            assert [(await first(car)).event.text for _ in range(2)] == ["crash", "end"]
            assert adapter.statistics().dropped == {"expired": 2, "repeated-alert": 1}
            assert car.dropped == {}


@in_loop
async def test_a_restarted_adapter_finds_the_alerts_that_still_hold() -> None:
    async with live() as world:
        adapter = await world.adapter()
        tell(world, alert(Area(AROUND_HERE), "for a minute", until_s=60))
        tell(world, alert(Area(AROUND_HERE), "just now"))
        await until(lambda: adapter.statistics().counters.get("area_alerts") == 2)
        await world.stop(adapter)
        again = await world.adapter()
        assert again.statistics().gauges["standing_alerts"] == 1
        async with connect(again, "car") as car:
            assert (await first(car)).event.text == "for a minute"
            tell(world, alert(Address.client("car"), "end"))
            assert (await first(car)).event.text == "end"


@in_loop
async def test_bad_records_on_the_bus_are_counted_and_the_others_served() -> None:
    async with live() as world:
        adapter = await world.adapter()
        good = alert(Address.everyone(), "still here")
        broken_area = encode(alert(Area(Circle(HERE, 500.0)))).replace(
            encode(alert(Area(Circle(HERE, 500.0))))[-1:], b""
        )
        async with connect(adapter, "car") as car:
            other_version = bytearray(encode(good))
            assert other_version[:2] == b"\x08\x01"
            other_version[1] = 2
            for topic, value in (
                (topics.ALERTS_URGENT, b"\xff\xff\xff"),
                (topics.ALERTS_URGENT, b""),
                (topics.ALERTS_NORMAL, broken_area[:30]),
                (topics.ALERTS_NORMAL, bytes(other_version)),
                (topics.ALERTS_LOW, encode(alert(Address.service("x")))),
                (topics.ALERTS_LOW, encode(alert(Address.everyone(), "x" * 65_500))),
                (topics.MATCHED_CONTENT, encode(good)),  # says nothing of whom it matches
                (topics.REPLIES, b"\xff"),
            ):
                world.bus.append(topic, value, b"car")
            world.bus.flush_now()
            tell(world, good)
            assert (await first(car)).event.text == "still here"
            await until(lambda: sum(adapter.statistics().dropped.values()) == 8)
            assert set(adapter.statistics().dropped) == {
                "bus-malformed", "bus-version", "bus-no-address", "bus-oversized",
            }  # fmt: skip
            assert car.session.state == "established"


@in_loop
async def test_a_client_that_starts_anew_hears_again_what_it_may_have_missed() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter)
        await hand.init()
        tell(world, alert(Area(AROUND_HERE), until_s=60))
        await hand.next(Kind.ALERT)
        await hand.init(incarnation=2)
        assert (await hand.next(Kind.ALERT)).event.text == "crash"
        hand.close()


@in_loop
async def test_a_position_at_the_antimeridian_and_the_poles_is_served() -> None:
    async with live() as world:
        adapter = await world.adapter()
        dateline = Position(10.0, 179.999)
        async with connect(adapter, "ship", Position(10.0, -179.999)) as ship:
            tell(world, alert(Area(Circle(dateline, 1000.0)), "across the date line"))
            assert (await first(ship)).event.text == "across the date line"


@in_loop
async def test_an_alert_that_begins_later_and_never_ends_is_kept() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "parked", HERE) as parked:
            tell(world, alert(Area(AROUND_HERE, valid_from_us=now_us() + 100_000)))
            assert (await first(parked)).event.text == "crash"


@in_loop
async def test_who_comes_back_without_having_answered_is_told_again_and_who_has_is_not() -> None:
    brief = SessionSettings(report_interval_s=0.3, missed_reports=2)
    async with live() as world:
        adapter = await world.adapter(session=brief)
        sent = tell(world, alert(Area(AROUND_HERE), until_s=60))
        hand = Hand(adapter)
        await hand.init()
        await until(lambda: len(hand.messages(Kind.ALERT)) == 1)
        await until(lambda: adapter.statistics().counters.get("sessions_silent") == 1)
        before = len(hand.messages(Kind.ALERT))  # it may have been repeated meanwhile
        await hand.init()
        await until(lambda: len(hand.messages(Kind.ALERT)) > before)
        hand.acknowledge(sent.id)
        hand.say(Kind.CLOSE)
        await until(lambda: adapter.statistics().counters.get("sessions_closed") == 1)
        told = len(hand.messages(Kind.ALERT))
        reports = adapter.statistics().counters["reports"]
        await hand.init()
        hand.say(Kind.REPORT, Telemetry(HERE))
        await until(lambda: adapter.statistics().counters["reports"] >= reports + 2)
        await until(lambda: not adapter.sessions.table.moved.any())  # all were looked at
        assert list(adapter.mediator.due(now() + 5.0)) == []
        assert adapter.mediator.outgoing.copies == 1
        assert len(hand.messages(Kind.ALERT)) == told
        hand.close()
