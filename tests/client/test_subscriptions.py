"""Content: published, filtered, near me, cancelled."""

from __future__ import annotations

import pytest
from live import FAR, HERE, NEAR, connect, first, in_loop, live, until

from mercury.client.reception import satisfies
from mercury.model.area import Position
from mercury.model.errors import FilterError, MessageError, RequestError
from mercury.model.filter import compile_filter
from mercury.model.message import Address, Attributes, Kind, Message, Subscription


def content(topic: str, values: dict[str, object], position: Position | None = None) -> Message:
    return Message(
        kind=Kind.CONTENT,
        source=Address.client("x"),
        destination=Address.broker(),
        topic=topic,
        payload=Attributes(values, position),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("message", "here", "wanted"),
    [
        (content("fuel", {"price": 1.5}, NEAR), HERE, True),
        (content("fuel", {"price": 1.5}, FAR), HERE, False),
        (content("fuel", {"price": 1.5}), HERE, False),  # says not where it belongs
        (content("fuel", {"price": 1.5}, FAR), None, True),  # who is nowhere cannot tell
        (content("fuel", {"price": 1.7}, NEAR), HERE, False),
        (content("parking", {"price": 1.5}, NEAR), HERE, False),
    ],
)
def test_what_a_subscription_asks_for(
    message: Message, here: Position | None, wanted: bool
) -> None:
    subscription = Subscription(b"1", "fuel", "price < 1.6", near_m=1000.0)
    assert satisfies(message, subscription, compile_filter(subscription.filter), here) is wanted


@in_loop
async def test_content_arrives_at_the_subscription_that_asked_for_it() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "station") as station, connect(adapter, "car") as car:
            cheap = await car.subscribe("fuel", where='price < 1.6 and brand == "X"')
            parking = await car.subscribe("parking")
            for price, brand in ((1.7, "X"), (1.5, "Y"), (1.4, "X")):
                await station.publish("fuel", {"price": price, "brand": brand})
            await station.publish("parking", {"free": 3})
            assert (await first(cheap)).values == {"price": 1.4, "brand": "X"}
            assert (await first(parking)).values == {"free": 3}
            assert len(cheap.inbox) == len(parking.inbox) == len(car.inbox) == 0


@in_loop
async def test_near_me_follows_the_client() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "station") as station, connect(adapter, "car", HERE) as car:
            fuel = await car.subscribe("fuel", near_m=2000.0)
            for number, place in enumerate((FAR, None, NEAR)):
                await station.publish("fuel", {"number": number}, position=place)
            assert (await first(fuel)).values == {"number": 2}
            car.move(FAR.lat, FAR.lon, report=True)
            slot = adapter.sessions.table.by_identity["car"].slot
            await until(lambda: adapter.sessions.table.lat[slot] == FAR.lat)
            for number, place in enumerate((NEAR, FAR)):
                await station.publish("fuel", {"number": number}, position=place)
            assert (await first(fuel)).values == {"number": 1}


@in_loop
async def test_a_handler_takes_the_place_of_the_stream() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        heard: list[object] = []
        async with connect(adapter, "car") as car:
            await car.subscribe("fuel", handler=lambda message: heard.append(message.values))
            await car.publish("fuel", {"price": 1.5})
            await until(lambda: heard)
            assert heard == [{"price": 1.5}]


@in_loop
async def test_after_cancel_nothing_more_comes() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as car:
            fuel = await car.subscribe("fuel")
            kept = await car.subscribe("parking")
            await fuel.cancel()
            await until(lambda: adapter.statistics().gauges["subscriptions"] == 1)
            await car.publish("fuel", {"price": 1.5})
            await car.publish("parking", {"free": 1})
            assert (await first(kept)).values == {"free": 1}
            assert [message async for message in fuel] == []
            await fuel.cancel()  # once more does no harm


@in_loop
async def test_a_senseless_subscription_is_refused_and_forgotten() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as car:
            with pytest.raises(FilterError):
                await car.subscribe("fuel", where="price <")
            with pytest.raises(RequestError, match="near_m must be more than 0, not -3"):
                await car.subscribe("fuel", near_m=-3.0)
            with pytest.raises(MessageError, match="'no topic' is no name for a topic"):
                await car.subscribe("no topic")
            assert car.reception.streams == {}
            assert adapter.statistics().gauges["subscriptions"] == 0
