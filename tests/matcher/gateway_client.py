"""A gateway on loopback, and the other side of it."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from live import WAIT_S
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from mercury.config import GatewaySettings
from mercury.matcher.gateway.server import Gateway
from mercury.matcher.hub import Hub
from mercury.matching import MatchingRules
from mercury.service.clock import now_us
from mercury.wire.gateway_frames import MOVE_ROW, pack_moves, read_server_frame

JSON, BINARY = "mercury.json.v1", "mercury.binary.v1"
LAT, LON = 60.17, 24.94
METRE = 1 / 111_195  # in degrees of latitude


class Clock:
    """The wall clock, which a test may put forward."""

    ahead_us = 0

    def __call__(self) -> int:
        return now_us() + self.ahead_us


class World:
    """A hub and its gateway."""

    def __init__(self, hub: Hub, gateway: Gateway, clock: Clock | None = None) -> None:
        self.hub = hub
        self._clock = clock
        self.gateway = gateway
        self.url = f"http://127.0.0.1:{gateway.port}"

    @asynccontextmanager
    async def connect(self, subprotocol: str | None = None) -> AsyncIterator[Talk]:
        offered = None if subprotocol is None else [subprotocol]
        address = f"ws://127.0.0.1:{self.gateway.port}/v1/match"
        async with connect(
            address,
            subprotocols=offered,
            compression=None,
            max_size=None,  # type: ignore[arg-type]
        ) as websocket:
            yield Talk(websocket)

    def let_pass(self, seconds: float) -> None:
        """What happens by itself in this time happens now."""
        assert self._clock is not None
        self._clock.ahead_us += round(seconds * 1e6)
        self.hub.tick()

    def count(self, name: str) -> float:
        return self.gateway.statistics().flat().get(name, 0)

    def entities(self) -> tuple[float, float]:
        numbers = self.hub.engine.statistics()
        return numbers["publications"], numbers["subscriptions"]


@asynccontextmanager
async def world(rules: MatchingRules | None = None, **settings: Any) -> AsyncIterator[World]:
    """A gateway that is open for a while; nothing may be left when it has closed."""
    clock = Clock()
    hub = Hub(rules or MatchingRules(), clock=clock)
    gateway = Gateway(hub, GatewaySettings(port=0, **settings))
    await gateway.start()
    running = asyncio.create_task(hub.run())
    try:
        yield World(hub, gateway, clock)
    finally:
        await gateway.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    gauges = gateway.statistics().gauges
    assert not any(gauges.values()), gauges


class Talk:
    """One websocket, as a client has it."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket
        self.names: dict[int, dict[str, Any]] = {}
        self.progress = (0, 0)
        self._passed_over: deque[str | bytes] = deque()

    async def hear(self) -> str | bytes:
        """The next frame."""
        if self._passed_over:
            return self._passed_over.popleft()
        return await self.websocket.recv()

    async def say(self, *ops: Any) -> Any:
        """Say something and return the answer, keeping events before it."""
        await self.websocket.send(json.dumps(ops[0] if len(ops) == 1 else ops))
        return await self.hear_answer()

    async def hear_answer(self) -> Any:
        """The next answer."""
        async with asyncio.timeout(WAIT_S):
            while True:
                heard = await self.websocket.recv()
                if isinstance(heard, str) and self._is_answer(answer := json.loads(heard)):
                    return answer
                self._passed_over.append(heard)

    async def ok(self, *ops: dict[str, Any]) -> None:
        for op in ops:
            assert await self.say(op) == {"ok": True}, op

    async def event(self) -> dict[str, Any]:
        """The next event in text."""
        async with asyncio.timeout(WAIT_S):
            while True:
                heard = await self.hear()
                if isinstance(heard, str) and "event" in (event := json.loads(heard)):
                    assert isinstance(event, dict)
                    return event

    async def rows(self, count: int) -> NDArray[np.void]:
        """The next events in rows, so many at least; keeps names and progress aside."""
        got: list[NDArray[np.void]] = []
        async with asyncio.timeout(WAIT_S):
            while sum(map(len, got)) < count:
                if (rows := await self.frame()) is not None:
                    got.append(rows)
        return np.concatenate(got)

    async def frame(self) -> NDArray[np.void] | None:
        """The next frame, if it is one of events."""
        heard = await self.hear()
        if isinstance(heard, str):
            said = json.loads(heard)
            for one in said.get("publications", []) if isinstance(said, dict) else []:
                self.names[one.pop("number")] = one
            return None
        if heard[3] == 3:
            self.progress = struct.unpack_from("<QQ", heard, 8)
            return None
        return read_server_frame(heard)[1]

    async def until_progress(self, taken: int, dropped: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.progress != (taken, dropped):
                await self.frame()

    async def move(self, *rows: tuple[float, ...]) -> None:
        """Send a binary frame of (handle, lat, lon[, time_us])."""
        await self.websocket.send(pack_moves(moves(*rows)))

    @staticmethod
    def _is_answer(said: Any) -> bool:
        return isinstance(said, list) or bool(said.keys() & {"ok", "error"})


class Paper:
    """A wire that ends on paper."""

    def __init__(self) -> None:
        self.texts: list[Any] = []
        self.frames: list[bytes] = []
        self.is_held = False

    def send_text(self, text: str) -> None:
        self.texts.append(json.loads(text))

    def send_binary(self, data: bytes) -> None:
        self.frames.append(data)

    def waiting_bytes(self) -> int:
        return 0

    def hold(self, held: bool) -> None:
        self.is_held = held

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(f"closed with {code}: {reason}")


def moves(*rows: tuple[float, ...]) -> NDArray[np.void]:
    table = np.zeros(len(rows), MOVE_ROW)
    for row, (handle, lat, lon, *time_us) in zip(table, rows, strict=True):
        row["handle"], row["lat_e7"], row["lon_e7"] = handle, round(lat * 1e7), round(lon * 1e7)
        row["time_us"] = time_us[0] if time_us else 0
    return table


def publish(name: str = "taxi-1", metres: float | None = None, **more: Any) -> dict[str, Any]:
    return {"op": "publish", "id": name, "topic": "taxi", **_place(metres), **more}


def near(name: str = "me", metres: float | None = 0, **more: Any) -> dict[str, Any]:
    scope = {} if "area" in more else {"radius_m": 500}
    return {"op": "near", "id": name, "topic": "taxi", **scope, **_place(metres), **more}


def move(name: str, metres: float, **more: Any) -> dict[str, Any]:
    return {"op": "move", "id": name, **_place(metres), **more}


def _place(metres: float | None) -> dict[str, float]:
    """So many metres north of here."""
    return {} if metres is None else {"lat": LAT + metres * METRE, "lon": LON}
