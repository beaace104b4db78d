"""A small real websocket server that speaks the matcher's protocol and matches by brute force."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from matching.twin import Twin
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from mercury.model.errors import MatchingError
from mercury.model.matching import NearSubscription, Publication

_UPDATE = struct.Struct("<IiiHHq")
_EVENT = struct.Struct("<IIqiifBBH")


class Gateway:
    """Counts what it got; while `going` is cleared, it does not read."""

    def __init__(self) -> None:
        self.twin = Twin()
        self.taken_of: Counter[int] = Counter()  # by connection
        self.dropped_of: Counter[int] = Counter()
        self.times_us: list[int] = []
        self.accuracies_m: set[float] = set()
        self.connections: list[ServerConnection] = []
        self.going = asyncio.Event()
        self.going.set()
        self.refuse = ""
        self.hang_up_after = 1 << 60  # updates
        self.port = 0
        self._handles: dict[tuple[int, int], tuple[str, str]] = {}
        self._handle_of: dict[str, tuple[ServerConnection, int]] = {}

    @property
    def taken(self) -> int:
        return self.taken_of.total()

    async def serve(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        number = len(self.connections)
        try:
            async for frame in connection:
                if isinstance(frame, str):
                    await self._text(connection, number, json.loads(frame))
                else:
                    await self._binary(connection, number, frame)
                await self._notify()
                await self.going.wait()
                if self.taken > self.hang_up_after:
                    await connection.close(1013, "too much")
                    return
        except ConnectionClosed:
            pass

    async def _text(self, connection: ServerConnection, number: int, content: Any) -> None:
        operations = content if isinstance(content, list) else [content]
        replies = [self._operation(connection, number, one) for one in operations]
        await connection.send(json.dumps(replies if isinstance(content, list) else replies[0]))

    def _operation(
        self, connection: ServerConnection, number: int, operation: dict[str, Any]
    ) -> dict[str, Any]:
        kind = operation["op"]
        if kind == "hello":
            return {"ok": True, "n": operation["n"]}
        if self.refuse:
            return {"error": self.refuse, "reason": "topic"}
        if kind == "move":
            time_us = operation["time_us"]
            self._move(number, operation["handle"], operation["lat"], operation["lon"], time_us)
            self.accuracies_m.add(operation["accuracy_m"])
            return {"ok": True}
        common = {"id": operation["id"], "topic": operation["topic"], "ttl_s": operation["ttl_s"]}
        try:
            if kind == "publish":
                self.twin.publish(Publication(**common, values=operation["values"]), 0)
            else:
                subscription = {key: operation[key] for key in ("radius_m", "where", "inside")}
                self.twin.subscribe(NearSubscription(**common, **subscription), 0)
                self._handle_of[common["id"]] = connection, operation["handle"]
        except MatchingError as error:
            return {"error": str(error), "reason": error.reason}
        side = "publication" if kind == "publish" else "subscription"
        assert (number, operation["handle"]) not in self._handles
        self._handles[number, operation["handle"]] = side, common["id"]
        return {"ok": True}

    async def _binary(self, connection: ServerConnection, number: int, frame: bytes) -> None:
        magic, version, kind, count = struct.unpack_from("<2sBBI", frame)
        assert (magic, version, kind) == (b"Mv", 1, 1)
        assert len(frame) == 8 + 24 * count
        for at in range(count):
            handle, lat_e7, lon_e7, accuracy_dm, _, time_us = _UPDATE.unpack_from(
                frame, 8 + 24 * at
            )
            self.accuracies_m.add(accuracy_dm / 10.0)
            self._move(number, handle, lat_e7 / 1e7, lon_e7 / 1e7, time_us)
        header = struct.pack("<2sBBI", b"Mv", 1, 3, 1)
        counts = struct.pack("<QQ", self.taken_of[number], self.dropped_of[number])
        await connection.send(header + counts)

    def _move(self, number: int, handle: int, lat: float, lon: float, time_us: int) -> None:
        self.times_us.append(time_us)
        known = self._handles.get((number, handle))
        if known is None:
            self.dropped_of[number] += 1
            return
        self.taken_of[number] += 1
        self.twin.move(*known, lat, lon, time_us, 5.0)

    async def _notify(self) -> None:
        events, self.twin.notified = self.twin.notified, []
        for one in events:
            connection, handle = self._handle_of[one.subscription]
            if connection.subprotocol == "mercury.binary.v1":
                row = (handle, 1, one.time_us, 0, 0, one.distance_m, one.event_type, one.reason, 0)
                header = struct.pack("<2sBBI", b"Mv", 1, 2, 1)
                await connection.send(header + _EVENT.pack(*row))
                continue
            event = {
                "event": one.event_type.name.lower(),
                "reason": one.reason.name.lower(),
                "subscription": one.subscription,
                "publication": one.publication,
                "time_us": one.time_us,
            }
            await connection.send(json.dumps(event))


@asynccontextmanager
async def open_gateway() -> AsyncIterator[Gateway]:
    """On a free port of the loopback."""
    gateway = Gateway()
    protocols = [Subprotocol("mercury.binary.v1"), Subprotocol("mercury.json.v1")]
    async with serve(
        gateway.serve, "127.0.0.1", 0, subprotocols=protocols, compression=None, close_timeout=1
    ) as server:
        gateway.port = next(iter(server.sockets)).getsockname()[1]
        try:
            yield gateway
        finally:
            gateway.going.set()
