"""A service that speaks to the bus directly."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from live import FAR, HERE, NEAR, connect, first, in_loop, live, until

from mercury import ServiceEndpoint
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.errors import BusUnavailableError, MessageError, MessageTooLargeError
from mercury.model.message import Address, Kind, Message


@in_loop
async def test_what_a_service_publishes_reaches_subscribers_nearby() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        service = ServiceEndpoint(world.bus, "fuel-prices")
        async with connect(adapter, "car", HERE) as car:
            fuel = await car.subscribe("fuel", where="price < 1.6", near_m=2000.0)
            await service.publish("fuel", {"price": 1.4}, position=FAR)
            await service.publish("fuel", {"price": 1.7}, position=NEAR)
            sent = await service.publish("fuel", {"price": 1.5}, position=(NEAR.lat, NEAR.lon))
            got = await first(fuel)
            assert got == sent
            assert got.source == Address.service("fuel-prices")


@in_loop
async def test_alerts_reach_an_area_a_place_a_client_and_everyone() -> None:
    async with live() as world:
        adapter = await world.adapter()
        service = ServiceEndpoint(world.bus, "police")
        async with connect(adapter, "car", HERE) as car:
            await service.alert(Area(Circle(HERE, 100.0)), text="area")
            await service.alert((HERE.lat, HERE.lon), radius_m=50.0, text="place")
            await service.alert(FAR, text="elsewhere")
            await service.alert(
                Address.client("car"), text="client", kind="request", values={"a": 1}
            )
            await service.alert(Address.everyone(), text="everyone", priority=3)
            heard = [await first(car) for _ in range(4)]
            assert [message.event.text for message in heard] == [
                "area", "place", "client", "everyone",
            ]  # fmt: skip
            assert heard[2].event.kind == "request"
            assert heard[2].values == {"a": 1}
            assert adapter.statistics().gauges["standing_alerts"] == 3


@in_loop
async def test_the_validity_of_an_alert() -> None:
    async with live() as world:
        service = ServiceEndpoint(world.bus, "police")
        now_us = time.time_ns() // 1000
        minute = (await service.alert(HERE)).message
        assert minute.destination.area.valid_until_us == minute.expires_us
        assert 59e6 < minute.expires_us - now_us < 61e6 + 5e6
        for_ever = (await service.alert(HERE, validity_s=None)).message
        assert for_ever.destination.area.valid_until_us is None
        assert for_ever.expires_us == 0
        own = Area(Circle(HERE, 1.0), valid_until_us=now_us + 10**9)
        assert (await service.alert(own)).message.expires_us == now_us + 10**9


@in_loop
async def test_a_service_listens_to_topics_until_the_bus_is_closed() -> None:
    async with live() as world:
        heard: list[Message] = []
        service = ServiceEndpoint(world.uri, "listener")

        async def listen() -> None:
            async for message in service.listen(topics.REPORTS, "content.*"):
                heard.append(message)

        async with service:
            listening = asyncio.create_task(listen())
            adapter = await world.adapter()
            async with connect(adapter, "car") as car:
                await car.publish("fuel", {"price": 1})
                world.bus.append(topics.REPORTS, b"\xff\xff")
                world.bus.flush_now()
                await until(lambda: len(heard) == 2 and service.unreadable == 1)
            assert sorted(message.kind for message in heard) == [Kind.INIT, Kind.CONTENT]
        async with asyncio.timeout(5.0):
            await listening


@in_loop
async def test_members_of_a_group_share_what_they_hear() -> None:
    async with live() as world:
        heard: list[bytes] = []

        async def listen(name: str) -> None:
            async with ServiceEndpoint(world.uri, name) as service:
                async for message in service.listen("content.*", group="g", start="earliest"):
                    heard.append(message.id)

        members = [asyncio.create_task(listen(name)) for name in ("one", "two")]
        publisher = ServiceEndpoint(world.bus, "publisher")
        sent = {(await publisher.publish("fuel", {"n": number})).id for number in range(50)}
        await until(lambda: len(heard) >= 50)
        assert set(heard) == sent
        assert len(heard) == 50
        for member in members:
            member.cancel()
        await asyncio.gather(*members, return_exceptions=True)


@in_loop
async def test_what_cannot_be_sent_is_a_clear_error() -> None:
    async with live() as world:
        service = ServiceEndpoint(world.bus, "x")
        with pytest.raises(MessageTooLargeError, match="at most 65475"):
            await service.publish("fuel", {"x": b"x" * 65_500})
        with pytest.raises(MessageError, match="is no name for a topic"):
            await service.publish("no topic", {})
        with pytest.raises(MessageError, match="priority 10"):
            await service.alert(HERE, priority=10)


def test_a_bus_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BusUnavailableError):
        ServiceEndpoint(f"embedded:{tmp_path}/no/such/folder/bus.db", "x")
