"""A live system whose records are damaged: it goes on, and says what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import HERE, connect, in_loop, live, until

from mercury.bus.embedded.inspection import inspect_bus
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.message import Address, Event, Kind, Message, Priority
from mercury.service.clock import now_us

HOUR_US = 3_600_000_000


def alert(text: str) -> Message:
    return Message(
        kind=Kind.ALERT,
        source=Address.service("office"),
        destination=Address.to_area(Area(Circle(HERE, 1000.0), valid_until_us=now_us() + HOUR_US)),
        expires_us=now_us() + HOUR_US,
        priority=Priority.EMERGENCY,
        payload=Event("emergency", HERE, text=text),
    )


@pytest.mark.parametrize("restarted", [False, True])
@in_loop
async def test_a_flipped_bit_in_the_alerts_costs_the_alert(tmp_path: Path, restarted: bool) -> None:
    path = tmp_path / "bus.db"
    async with live(f"embedded:{path}") as world:
        adapter = await world.adapter()
        broker = await world.broker()
        for text in ("one", "two", "three"):
            world.append(topics.ALERTS_URGENT, alert(text))
        await until(lambda: len(adapter.addressing.standing) == 3)
        [segment] = [
            file for file in path.with_name("bus.db-records").rglob("*.log")
            if file.read_bytes().count(b"emergency") == 3
        ]  # fmt: skip
        data = bytearray(segment.read_bytes())
        data[data.index(b"two")] ^= 1
        segment.write_bytes(data)
        if restarted:
            await world.stop(broker)
            await world.stop(adapter)
            adapter = await world.adapter()
            await world.broker()
        heard: set[str] = set()
        car = connect(adapter, "car")

        @car.on(Kind.ALERT)
        def hear(message: Message) -> None:
            assert message.event is not None
            heard.add(message.event.text)

        async with car:
            world.append(topics.ALERTS_URGENT, alert("four"))
            known = {"one", "three", "four"} | (set() if restarted else {"two"})
            await until(lambda: heard == known)
            assert await car.echo() > 0
    [damage] = inspect_bus(path).damage
    assert f"{segment} is damaged at byte" in damage.found
    assert "record 2 cannot be read" in damage.found
