"""An adapter, a broker and clients that sense emergencies, while what they stand on is killed."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

from integration.processes import Process, Starter, free_udp_port

import mercury
from mercury.bus import Bus, open_bus
from mercury.model import topics
from mercury.model.identity import derived_id
from mercury.model.message import EventKind, Message
from mercury.session import SessionSettings
from mercury.wire import decode

CLIENTS = 4
TIMEOUT_S = 40.0
# Emergencies that are metres apart are two; whoever is slow for a while is not given up.
SETTINGS = """
[broker]
merge_distance_m = 1.0
emergency_validity_s = 600.0

[session]
missed_reports = 100
"""
_QUICK = SessionSettings(report_interval_s=0.2, init_retry_s=0.1, init_retry_max_s=0.3)
# Of a client, between two emergencies: what an outage holds back must fit a socket's buffer.
_PAUSE_S = 0.4
_STEP_DEG = 1e-4  # 11 m
_EMERGENCIES = topics.events_topic(EventKind.EMERGENCY)


class AlertPath:
    """The processes, the clients, and what was sensed and heard."""

    def __init__(self, starter: Starter, rng: random.Random, *, mortal_adapter: bool) -> None:
        self.sensed: set[UUID] = set()  # events that clients sent
        self.on_bus: set[UUID] = set()  # those of them that came to the bus
        self.alerts: set[UUID] = set()  # alerts on the bus
        self.heard: dict[str, Counter[UUID]] = {}  # alerts that an application got, by client
        self._mortal_adapter = mortal_adapter  # what is sent to one that is dead does not count
        self._starter = starter
        self._rng = rng
        self._port = free_udp_port()
        self._numbers = itertools.count()
        self._parts: dict[str, Process] = {}

    async def start(self, *parts: str) -> None:
        """Start parts, or start them again as they were."""
        for part in parts:
            port = ("--port", str(self._port)) if part == "adapter" else ()
            self._parts[part] = self._starter(part, "--id", f"{part}-1", *port)
        await asyncio.gather(*(self._parts[part].ready() for part in parts))

    async def kill(self, *parts: str) -> None:
        """Kill parts."""
        for part in parts:
            assert self._parts[part].process.poll() is None, self._parts[part].log
            self._parts[part].process.send_signal(signal.SIGKILL)
        for part in parts:
            await self._parts[part].ended()

    async def a_while(self) -> None:
        """Let things go on until a moment that nobody foresees."""
        await asyncio.sleep(self._rng.uniform(0.2, 1.5))

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Clients sense emergencies while the block lasts, and stay where they hear of them."""
        async with AsyncExitStack() as held:
            tasks = []
            for number in range(CLIENTS):
                client = self._client(f"car-{number}")
                heard = self.heard[client.identity] = Counter()
                client.on(mercury.Kind.ALERT)(_counting(heard))
                await held.enter_async_context(client)
                tasks.append(asyncio.create_task(self._sense(client)))
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await self._settle()

    @property
    def complaints(self) -> int:
        """How many lines the parts that run have written."""
        return sum(len(part.log.splitlines()) for part in self._parts.values())

    def check(self, seed: int) -> None:
        """Each event on the bus became one alert, and each client got each alert once."""
        assert self.on_bus <= self.sensed
        assert self._mortal_adapter or self.on_bus == self.sensed, f"seed {seed}"
        assert self.alerts == self._due(), f"seed {seed}"
        for client, heard in self.heard.items():
            lost = self.alerts - heard.keys()
            assert not lost, f"{client} did not hear {len(lost)} of {len(heard)}, seed {seed}"
            assert heard.keys() == self.alerts
            assert set(heard.values()) == {1}, f"{client} heard twice, seed {seed}"

    def _client(self, identity: str) -> mercury.Client:
        return mercury.connect(
            f"udp://127.0.0.1:{self._port}",
            identity=identity,
            position=(40.76, -111.89),
            settings=_QUICK,
            connect_timeout_s=TIMEOUT_S,
        )

    async def _sense(self, client: mercury.Client) -> None:
        while True:
            number = next(self._numbers)
            place = (40.759 + number % 20 * _STEP_DEG, -111.891 + number // 20 * _STEP_DEG)
            sent = await client.sense(EventKind.EMERGENCY, position=place)
            self.sensed.add(sent.id)
            await asyncio.sleep(_PAUSE_S * self._rng.uniform(0.5, 1.5))  # the rate of events

    def _due(self) -> set[UUID]:
        return {UUID(bytes=derived_id(id.bytes, "alert")) for id in self.on_bus}

    async def _settle(self) -> None:
        """Wait until all that came to the bus is an alert that all have heard, or time is up."""
        bus = await asyncio.to_thread(open_bus, self._starter.bus)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not self._settled():
                    self.on_bus = await asyncio.to_thread(_ids, bus, [_EMERGENCIES])
                    self.alerts = await asyncio.to_thread(_ids, bus, topics.ALERTS)
        except TimeoutError:
            pass  # `check` says what is missing
        finally:
            await asyncio.to_thread(bus.close)

    def _settled(self) -> bool:
        heard = self.heard.values()
        return (
            (self.on_bus == self.sensed or (self._mortal_adapter and bool(self.on_bus)))
            and self.alerts == self._due()
            and all(one.keys() == self.alerts for one in heard)
        )


def _counting(heard: Counter[UUID]) -> Callable[[Message], None]:
    return lambda message: heard.update([message.id])


def _ids(bus: Bus, names: Iterable[str]) -> set[UUID]:
    """The ids of all messages of topics."""
    consumer = bus.subscribe(tuple(names), start="earliest")
    found: set[UUID] = set()
    while records := consumer.poll(4096):
        found |= {decode(record.value).id for record in records}
    consumer.close()
    return found
