"""Services that run on loopback for a test, and a hand that makes packets of every sort."""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from wire.packets import unpack

import mercury
from mercury.adapter import Adapter
from mercury.broker import Broker
from mercury.bus import Bus, Consumer, Record, open_bus
from mercury.config import MatcherSettings
from mercury.config.mediator import MediatorSettings
from mercury.config.settings import AdapterSettings, BrokerSettings
from mercury.model.area import Area, Position
from mercury.model.message import Address, Grant, Kind, Message, Payload, Telemetry
from mercury.net import UdpEndpoint, bind_udp, to_sockaddr
from mercury.service import Service
from mercury.session import SessionSettings
from mercury.wire import HEADER_BYTES, NO_TOKEN, decode, encode, mercury_pb2, pack
from mercury.wire.packet import CARRIES_RECEIPTS

WAIT_S = 10.0  # no test waits this long unless it fails
TEST_S = 40.0

HERE = Position(40.76, -111.89)
NEAR = Position(40.761, -111.89)  # 111 m to the north
FAR = Position(40.90, -111.89)  # 15 km to the north


def in_loop(
    test: Callable[..., Coroutine[Any, Any, None]], timeout_s: float = TEST_S
) -> Callable[..., None]:
    """Run a test on the event loop; an exception in a callback of the loop fails it, too."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        failures: list[dict[str, Any]] = []

        async def guarded() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _loop, context: failures.append(context))
            async with asyncio.timeout(timeout_s):
                await test(*args, **kwargs)

        uvloop.run(guarded())
        for context in failures:
            raise context.get("exception") or AssertionError(context["message"])

    return run


async def until(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Wait until something holds, and return it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not (found := condition()):
        assert loop.time() < deadline, f"not within {timeout_s:g} s"
        await asyncio.sleep(0.002)
    return found


def eventually(condition: Callable[[], Any], timeout_s: float = WAIT_S, what: str = "") -> Any:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.005)
    return found


async def iterate(iterations: int = 1) -> None:
    """Let the event loop run what is ready."""
    for _ in range(iterations):
        await asyncio.sleep(0)


async def first(messages: AsyncIterator[Message]) -> Message:
    """The next message of an inbox or a stream."""
    async with asyncio.timeout(WAIT_S):
        return await anext(aiter(messages))


class Live:
    """One bus, and what runs on it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._buses: list[Bus] = []
        self.bus = self.open()
        self._services: list[Service] = []

    def open(self) -> Bus:
        """A connection to the bus."""
        self._buses.append(open_bus(self.uri))
        return self._buses[-1]

    async def adapter(
        self,
        *,
        coverage: Area | None = None,
        session: SessionSettings | None = None,
        mediator: MediatorSettings | None = None,
        **settings: Any,
    ) -> Adapter:
        """Start an adapter on a free port."""
        settings.setdefault("port", 0)
        settings.setdefault("standing_tick_s", 0.005)
        adapter = Adapter(
            self.open(),
            AdapterSettings(**settings),
            session or SessionSettings(),
            coverage,
            mediator,
        )
        return await self._start(adapter)

    async def broker(self, **settings: Any) -> Broker:
        """Start a broker."""
        return await self._start(Broker(self.open(), BrokerSettings(**settings)))

    async def matcher(self, *, shared: bool = False, **settings: Any) -> Service:
        """Start a matcher without a gateway."""
        # Here: it compiles itself, which few tests need.
        from mercury.matcher.service import Matcher, SharedMatcher

        kind = SharedMatcher if shared else Matcher
        return await self._start(kind(self.open(), MatcherSettings(**settings)))

    async def _start(self, service: Any) -> Any:
        try:
            await service.start()
        except BaseException:
            service.bus.close()
            raise
        self._services.append(service)
        return service

    async def stop(self, service: Service) -> None:
        """Stop one service."""
        self._services.remove(service)
        await service.stop()
        service.bus.close()
        assert service._failure is None

    def append(self, topic: str, message: Message, key: bytes = b"key") -> Message:
        """Put a message on the bus at once."""
        self.bus.append(topic, encode(message), key)
        self.bus.flush_now()
        return message

    def read(self, *topics: str) -> Consumer:
        """Read topics from now on."""
        return self.bus.subscribe(topics)

    async def close(self) -> None:
        for service in reversed(list(self._services)):
            await self.stop(service)
        for bus in self._buses:
            bus.close()


@asynccontextmanager
async def live(uri: str | None = None) -> AsyncIterator[Live]:
    """A bus of its own, in memory unless told otherwise, for the services of one test."""
    world = Live(uri or f"memory:{uuid.uuid4().hex}")
    try:
        yield world
    finally:
        await world.close()


def connect(
    adapter: Adapter, identity: str, position: Position | None = HERE, **options: Any
) -> mercury.Client:
    """A client of an adapter."""
    return mercury.connect(
        f"udp://127.0.0.1:{adapter.port}", identity=identity, position=position, **options
    )


async def poll(consumer: Consumer, count: int) -> list[Record]:
    """Read until there are so many records."""
    found: list[Record] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found += await consumer.read()
    return found


class Hand:
    """A socket and everything to speak the protocol by hand, rightly or wrongly."""

    def __init__(self, adapter: Adapter, identity: str = "hand") -> None:
        self.identity = identity
        self.received: list[bytes] = []
        self.token = NO_TOKEN
        self.sequence = 0
        self._to = to_sockaddr("127.0.0.1", adapter.port)
        self._endpoint = UdpEndpoint(bind_udp("127.0.0.1", 0), self._on_packets)

    def _on_packets(self, packets: list[tuple[bytes, bytes]]) -> None:
        self.received += [packet for packet, _ in packets]

    def raw(self, *packets: bytes) -> None:
        """Send bytes as they are."""
        self._endpoint.send([(packet, self._to) for packet in packets])

    def body(self, kind: Kind, payload: Payload = None, **fields: Any) -> bytes:
        """An Envelope of this client."""
        fields.setdefault("source", Address.client(self.identity))
        fields.setdefault("destination", Address.broker())
        return encode(Message(kind=kind, payload=payload, **fields))

    def packet(self, kind: Kind, body: bytes, flags: int = 0) -> bytes:
        """The next packet of the session."""
        self.sequence += 1
        return pack(kind, 4, self.token, self.sequence, body, flags)

    def say(self, kind: Kind, payload: Payload = None, **fields: Any) -> None:
        """Send a message as the session's next packet."""
        self.raw(self.packet(kind, self.body(kind, payload, **fields)))

    def acknowledge(self, *ids: uuid.UUID) -> None:
        """Say that messages have arrived."""
        receipts = mercury_pb2.Envelope(received=[id.bytes for id in ids]).SerializeToString()
        body = self.body(Kind.RECEIPT) + receipts
        self.raw(self.packet(Kind.RECEIPT, body, CARRIES_RECEIPTS))

    async def raw_init(self, body: bytes, incarnation: int = 1) -> None:
        """Send an INIT with the cookie that the adapter wants to see."""
        self.raw(pack(Kind.INIT, 4, NO_TOKEN, incarnation, body))

        def challenges() -> list[bytes]:
            return [one for one in self.received if unpack(one).kind == Kind.CHALLENGE]

        challenge = (await until(challenges))[-1]
        self.received.remove(challenge)
        self.raw(pack(Kind.INIT, 4, unpack(challenge).token, incarnation, body))

    async def init(
        self, position: Position = HERE, incarnation: int = 1, groups: tuple[str, ...] = ()
    ) -> Grant:
        """Open a session."""
        body = self.body(Kind.INIT, Telemetry(position))
        body += mercury_pb2.Envelope(groups=groups).SerializeToString()
        await self.raw_init(body, incarnation)
        grant = (await self.next(Kind.ACKNOWLEDGE)).payload
        assert isinstance(grant, Grant)
        self.token = grant.token
        self.sequence = 0
        return grant

    def messages(self, kind: Kind) -> list[Message]:
        """What has come of a kind."""
        return [
            decode(packet[HEADER_BYTES:]) for packet in self.received if unpack(packet).kind == kind
        ]

    async def next(self, kind: Kind) -> Message:
        """Wait for a message of a kind; takes note of no other."""
        found: list[Message] = await until(lambda: self.messages(kind))
        self.received = [packet for packet in self.received if unpack(packet).kind != kind]
        return found[0]

    def close(self) -> None:
        self._endpoint.close()


async def http_get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a page of a metrics server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body
