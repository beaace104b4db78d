"""Brokers as real processes that share the work, and come and go while it flows."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
from integration.processes import starting
from live import in_loop, until

from mercury.bus import Bus, Consumer, Record, open_bus
from mercury.model import topics
from mercury.model.message import Address, Attributes, Kind, Message
from mercury.wire import decode, encode

CARS = 40
INTERVAL_S = 0.001
ANSWER_S = 20.0


@pytest.fixture(params=["embedded", "kafka"])
def bus_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "kafka":
        return f"{request.getfixturevalue('kafka_broker').uri}/{uuid.uuid4().hex}"
    return f"embedded:{tmp_path / 'bus.db'}"


class Flow:
    """Echo requests of some cars, one after the other without end, and who answered which."""

    def __init__(self, bus: Bus) -> None:
        self.asked: list[UUID] = []
        self.answers: Counter[UUID | None] = Counter()  # by request
        self.answered_by: Counter[str] = Counter()
        self._bus = bus
        self._replies: Consumer = bus.subscribe((topics.REPLIES,))

    async def ask(self) -> None:
        while True:
            car = f"car-{len(self.asked) % CARS}"
            request = Message(
                kind=Kind.REQUEST,
                source=Address.client(car),
                destination=Address.broker(),
                topic="echo",
                payload=Attributes({"n": len(self.asked)}),
            )
            self.asked.append(request.id)
            self._bus.append(topics.REQUESTS, encode(request), car.encode())
            await asyncio.sleep(INTERVAL_S)  # the rate of requests

    async def listen(self) -> None:
        while True:
            self._count(await self._replies.read())

    def read_rest(self) -> None:
        while records := self._replies.poll():
            self._count(records)

    def _count(self, records: list[Record]) -> None:
        for record in records:
            reply = decode(record.value)
            self.answers[reply.correlation] += 1
            self.answered_by[str(reply.source)] += 1

    async def until_answered(self, *brokers: str) -> None:
        """Wait until each of these brokers has answered something from now on."""
        before = Counter(self.answered_by)
        await until(
            lambda: all(self.answered_by[one] > before[one] + 20 for one in brokers), ANSWER_S
        )


def test_brokers_come_and_go_and_each_request_is_answered_once(
    bus_uri: str, tmp_path: Path
) -> None:
    @in_loop
    async def scenario() -> None:
        with starting(tmp_path, bus_uri) as starter:
            one = starter("broker", "--id", "one")
            await one.ready()
            bus = open_bus(bus_uri)
            flow = Flow(bus)
            listening = asyncio.create_task(flow.listen())
            asking = asyncio.create_task(flow.ask())
            await flow.until_answered("broker:one")
            two = starter("broker", "--id", "two")
            await flow.until_answered("broker:one", "broker:two")
            three = starter("broker", "--id", "three")
            await flow.until_answered("broker:one", "broker:two", "broker:three")
            assert await one.end(signal.SIGTERM) == 0
            await flow.until_answered("broker:two", "broker:three")
            assert await three.end(signal.SIGINT) == 0
            await flow.until_answered("broker:two")
            asking.cancel()
            await until(lambda: len(flow.answers) >= len(flow.asked), ANSWER_S)
            assert await two.end(signal.SIGTERM) == 0
            listening.cancel()
            flow.read_rest()  # for what would come twice
            bus.close()
            assert set(flow.asked) == set(flow.answers)
            twice = [flow.asked.index(id) for id, count in flow.answers.items() if count > 1]
            assert twice == []

    scenario()
