"""Applications on the same device, behind one client."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from live import HERE, NEAR, WAIT_S, Live, connect, first, in_loop, live, until
from matching.bus_twin import bus_twin

import mercury
from mercury.adapter import Adapter
from mercury.client.relay import Relay
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.delivery import DeliveryState
from mercury.model.errors import RequestError
from mercury.model.message import Address, Attributes, DeliveryPolicy, Event, Kind, Message
from mercury.session import AdapterSessions, SessionSettings
from mercury.wire import MAX_BODY_BYTES, decode, encode


def app_of(car: mercury.Client, name: str) -> mercury.Client:
    assert car.relay is not None
    return mercury.connect(f"udp://127.0.0.1:{car.relay.port}", identity=name)


async def services(world: Live) -> Adapter:
    await world.broker()
    return await world.adapter()


@in_loop
async def test_an_application_publishes_subscribes_and_asks_through_the_client() -> None:
    async with live() as world:
        adapter = await services(world)
        content = world.read("content.*")
        async with connect(adapter, "car", relay_port=0) as car, app_of(car, "app") as app:
            assert await app.echo() > 0
            fuel = await app.subscribe("fuel", where="price < 2")
            sent = await app.publish("fuel", {"price": 1.5})
            got = await first(fuel)
            assert (got.id, got.values) == (sent.id, {"price": 1.5})
            [record] = await content.read()
            # The adapter knows the client, not the application behind it.
            assert decode(record.value).source == Address.client("car")
            await app.sense("emergency", position=HERE, text="crash")
            assert (await first(app)).event.text == "crash"
            assert (await first(car)).event.text == "crash"
            assert [one["text"] for one in await app.query(HERE)] == ["crash"]
            with pytest.raises(RequestError, match="near_m must be more than 0"):
                await app.subscribe("fuel", near_m=-3.0)
            assert len(car.reception.streams) == 0


@in_loop
async def test_two_applications_get_what_each_asked_for_and_both_the_alerts() -> None:
    async with live() as world:
        adapter = await services(world)
        async with (
            connect(adapter, "car", NEAR, relay_port=0) as car,
            app_of(car, "one") as one,
            app_of(car, "two") as two,
            connect(adapter, "station") as station,
        ):
            cheap = await one.subscribe("fuel", where="price < 1.6")
            parking = await two.subscribe("parking", near_m=1000.0)
            mine = await car.subscribe("fuel")
            await station.publish("fuel", {"price": 1.7})
            await station.publish("fuel", {"price": 1.5})
            await station.publish("parking", {"free": 1})  # says not where
            await station.publish("parking", {"free": 2}, position=HERE)
            assert (await first(cheap)).values == {"price": 1.5}
            assert (await first(parking)).values == {"free": 2}
            assert [(await first(mine)).values for _ in range(2)] == [
                {"price": 1.7}, {"price": 1.5},
            ]  # fmt: skip
            echoes = await asyncio.gather(
                one.request("echo", {"n": 1}), two.request("echo", {"n": 2})
            )
            assert [echo.values for echo in echoes] == [{"n": 1}, {"n": 2}]
            area = Address.to_area(Area(Circle(HERE, 500.0)))
            alert = Message(
                kind=Kind.ALERT,
                source=Address.broker("x"),
                destination=area,
                payload=Event("notice", text="for all"),
            )
            world.append(topics.ALERTS_URGENT, alert)
            for client in (car, one, two):
                assert (await first(client)).id == alert.id


@in_loop
async def test_an_application_that_says_goodbye_leaves_no_subscription_behind() -> None:
    async with live() as world:
        adapter = await services(world)
        async with connect(adapter, "car", relay_port=0) as car:
            assert car.relay is not None
            async with app_of(car, "app") as app:
                await app.subscribe("fuel")
                assert adapter.statistics().gauges["subscriptions"] == 1
            await until(lambda: not car.relay.subscriptions())
            await until(lambda: adapter.statistics().gauges["subscriptions"] == 0)


@in_loop
async def test_an_application_that_dies_is_pruned() -> None:
    async with live() as world:
        adapter = await services(world)
        async with connect(adapter, "car", relay_port=0) as car:
            relay = car.relay
            assert isinstance(relay, Relay)
            brief = SessionSettings(require_telemetry=False, report_interval_s=0.05)
            relay.sessions = AdapterSessions("car", brief, lambda: b"t" * 16)
            app = app_of(car, "app")
            await app.open()
            await app.connected(WAIT_S)
            await app.subscribe("fuel")
            app._timer.cancel()  # its process is gone: no report, no goodbye
            app._endpoint.close()
            app._endpoint = None
            await until(lambda: len(relay.sessions.table) == 0)
            assert relay.subscriptions() == []
            await until(lambda: adapter.statistics().gauges["subscriptions"] == 0)
            assert await car.echo() > 0


@in_loop
async def test_an_application_that_starts_anew_has_no_old_subscriptions() -> None:
    async with live() as world:
        adapter = await services(world)
        async with connect(adapter, "car", relay_port=0) as car:
            assert car.relay is not None
            dead = app_of(car, "app")
            await dead.open()
            await dead.connected(WAIT_S)
            await dead.subscribe("fuel")
            dead._timer.cancel()
            dead._endpoint.close()
            async with app_of(car, "app") as app:
                assert car.relay.subscriptions() == []
                await until(lambda: adapter.statistics().gauges["subscriptions"] == 0)
                assert await app.echo() > 0


@in_loop
async def test_subscriptions_of_applications_outlive_a_restart_of_the_adapter() -> None:
    quick = SessionSettings(heartbeat_interval_s=0.1, init_retry_s=0.05)
    async with live() as world:
        adapter = await world.adapter(session=quick)
        await world.broker()
        async with (
            connect(adapter, "car", relay_port=0, settings=quick) as car,
            app_of(car, "app") as app,
        ):
            fuel = await app.subscribe("fuel")
            port = adapter.port
            await world.stop(adapter)
            adapter = await world.adapter(port=port, session=quick)
            await until(lambda: adapter.statistics().gauges["subscriptions"] == 1)
            await car.publish("fuel", {"price": 1.5})
            assert (await first(fuel)).values == {"price": 1.5}


@in_loop
async def test_what_does_not_fit_once_the_client_speaks_for_it_is_counted() -> None:
    async with live() as world:
        adapter = await services(world)
        async with (
            connect(adapter, "a-car-with-quite-a-long-name", relay_port=0) as car,
            app_of(car, "app") as app,
        ):
            assert car.relay is not None
            message = app.compose(Kind.CONTENT, "fuel", Attributes({"x": b""}))
            room = MAX_BODY_BYTES - len(encode(message)) - 10
            await app.publish("fuel", {"x": b"x" * room})
            await until(lambda: car.relay.sessions.dropped)
            assert car.relay.sessions.dropped == {"oversized": 1}
            assert await app.echo() > 0


@in_loop
async def test_fields_of_a_newer_version_pass_the_relay() -> None:
    async with live() as world:
        adapter = await services(world)
        content = world.read("content.*")
        async with connect(adapter, "car", relay_port=0) as car, app_of(car, "app") as app:
            unknown = b"\xa2\x06\x03new"  # field 100
            message = app.compose(Kind.CONTENT, "fuel", Attributes({"x": 1}))
            app.session.send_body(Kind.CONTENT, 3, encode(message) + unknown)
            app.after_session()
            [record] = await content.read()
            assert unknown in record.value
            assert decode(record.value).unknown == unknown


@in_loop
async def test_what_an_application_senses_is_confirmed_by_the_adapter_and_on_the_bus_once() -> None:
    async with live() as world:
        adapter = await services(world)
        events = world.read("events.*")
        async with connect(adapter, "car", relay_port=0) as car, app_of(car, "app") as app:
            sensed = await app.sense("obstacle", position=HERE)
            assert await app.taken(sensed, WAIT_S) is DeliveryState.ACKNOWLEDGED
            # `sense` does not let this through; the adapter does not either, and says why.
            bad = app.compose(Kind.EVENT, "", Event("no such name!", HERE))
            await app._say(replace(bad, policy=DeliveryPolicy.REPEAT))
            assert await app.taken(bad, WAIT_S) is DeliveryState.REFUSED
            assert await app.why(bad.id) == "The adapter refused it: bad-topic."
            assert len(await events.read()) == 1
            assert await events.read(timeout_s=0.05) == []


@in_loop
async def test_applications_are_in_groups_tell_others_and_hear_who_heard() -> None:
    async with live() as world:
        adapter = await services(world)
        async with (
            connect(adapter, "car", relay_port=0) as car,
            app_of(car, "app") as app,
            connect(adapter, "ben", groups=["blue"]) as ben,
        ):
            receipts = await app.tell("ben", {"x": 1}, policy="critical")
            assert (await first(ben)).values["x"] == 1
            assert receipts.message.id
            await until(lambda: receipts.heard == ["ben"])
            await app.join("blue")
            await until(lambda: len(adapter.addressing.groups.slots("blue")) == 2)
            await ben.tell(Address.group("blue"), {"x": 2})
            assert (await first(app)).values["x"] == 2
            await app.leave("blue")
            await until(lambda: len(adapter.addressing.groups.slots("blue")) == 1)


@in_loop
async def test_applications_call_what_moves_as_they_like() -> None:
    quick = SessionSettings(report_interval_s=0.05, missed_reports=40)
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=quick)
        async with (
            connect(adapter, "car", relay_port=0) as car,
            app_of(car, "one") as one,
            connect(adapter, "cab", NEAR) as cab,
            connect(adapter, "lorry", NEAR) as lorry,
        ):
            await cab.publish_moving("taxi", {"seats": 4})
            await lorry.publish_moving("taxi", {"seats": 2})
            heard: dict[str, list[str]] = {"car": [], "one": [], "two": []}
            car.near("taxi", radius_m=500.0, handler=lambda m: heard["car"].append(m.publication))
            one.near(
                "taxi",
                radius_m=500.0,
                where="seats > 3",
                handler=lambda m: heard["one"].append(f"{m.subscription}:{m.publication}"),
            )
            async with app_of(car, "two") as two:
                two.near(
                    "taxi",
                    radius_m=500.0,
                    where="seats < 3",
                    handler=lambda m: heard["two"].append(f"{m.subscription}:{m.publication}"),
                )
                await until(lambda: all(heard.values()))
                await until(lambda: len(matcher.twin.subscriptions) == 3)
                await one.publish_moving("app", {})
                assert "car/one/app" in matcher.twin.publications
                assert [m.publication for m in await two.ask_near("taxi", radius_m=500.0)] == [
                    "cab/taxi", "lorry/taxi",
                ]  # fmt: skip
            await until(lambda: len(matcher.twin.subscriptions) == 2)
            assert heard["one"] == ["taxi:cab/taxi"]
            assert heard["two"] == ["taxi:lorry/taxi"]
            assert sorted(heard["car"]) == ["cab/taxi", "lorry/taxi"]
            port = adapter.port
            await world.stop(adapter)
            adapter = await world.adapter(session=quick, port=port)
            await until(lambda: len(adapter.moving.entities) == 5)
