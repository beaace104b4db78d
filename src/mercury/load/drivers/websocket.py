"""`ws://HOST:PORT` and `ws+json://HOST:PORT`: the matcher's gateway, in bytes or by JSON alone."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from mercury.load.counters import LoadCounters
from mercury.load.drivers.api import BACKLOG_ROWS, Batch, Clock, Say
from mercury.load.workload import Workload
from mercury.model.errors import LoadError, PacketError
from mercury.model.matching import EventReason, EventType, Publication
from mercury.wire.gateway_frames import MOVE_ROW, FrameType, pack_moves, read_server_frame
from mercury.wire.match_frames import to_e7

PATH = "/v1/match"
MAX_HANDLES = 1 << 20  # of one connection
_DECLARED_AT_ONCE = 500
_REPLY_TIMEOUT_S = 30.0
_DRAIN_STEP_S = 0.02
_QUIET_S = 0.3  # timeout: without an event, none is on its way
_EVENT_TYPES = {what.name.lower(): int(what) for what in EventType}
_REASONS = {reason.name.lower(): int(reason) for reason in EventReason}


class GatewayConnection:
    """One connection: queued frames, and what the server reports of those it got."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.waiting_rows = 0
        self.taken = self.dropped = 0
        self.broken = ""
        # Frames, and the rows of each.
        self._waiting: asyncio.Queue[tuple[bytes | str, int]] = asyncio.Queue()

    def put(self, frame: bytes | str, rows: int) -> bool:
        """Queue a frame; False if the queue is full."""
        if self.broken or self.waiting_rows + rows > BACKLOG_ROWS:
            return False
        self._waiting.put_nowait((frame, rows))
        self.waiting_rows += rows
        return True

    async def write(self) -> None:
        """Send queued frames, until cancelled or disconnected."""
        while True:
            frame, rows = await self._waiting.get()
            self.waiting_rows -= rows
            try:
                await self.socket.send(frame)
            except ConnectionClosed:
                return  # the reader raises the reason


class WebSocketDriver(ABC):
    """Declares by JSON, whatever its updates are; entities are dealt out over the connections."""

    SUBPROTOCOL: ClassVar[str]

    def __init__(self, host: str, port: int, path: str, connections: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        self._uri = f"ws://{shown}:{port}{path if path.strip('/') else PATH}"
        self._connection_count = connections
        self._connections: list[GatewayConnection] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._clock: Clock = lambda: 0
        self._accuracy_m = 0.0
        self._events_at_us = 0  # when the last ones came
        self.counters = LoadCounters(taken=0, dropped=0)

    @abstractmethod
    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> bytes | str:
        """Updates as the server takes them."""

    @abstractmethod
    def take_frame(self, connection: GatewayConnection, frame: bytes | str) -> None:
        """Process a frame from the server."""

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        if len(workload) > MAX_HANDLES * self._connection_count:
            raise LoadError(
                f"a connection carries {MAX_HANDLES:,} entities:"
                f" {len(workload):,} need more than {self._connection_count}"
            )
        self._clock, self._accuracy_m = clock, workload.accuracy_m
        for _ in range(self._connection_count):
            self._connections.append(GatewayConnection(await self._connect()))
        for number, connection in enumerate(self._connections):
            await self._declare(connection, number, workload, say)
        for connection in self._connections:
            self._tasks += map(asyncio.create_task, (self._read(connection), connection.write()))

    def send(self, batch: Batch) -> None:
        """Put frames on the connections of the entities."""
        count = len(self._connections)
        for number, connection in enumerate(self._connections):
            rows = batch.some(batch.entities % count == number) if count > 1 else batch
            if not len(rows):
                continue
            if connection.put(self.frame_of(rows, rows.entities // count), len(rows)):
                self.counters.sent += len(rows)
            else:
                self.counters.unsent += len(rows)
                if not connection.broken:
                    self.counters.note(
                        f"{BACKLOG_ROWS:,} updates waited for the server; what came then was not"
                        " sent"
                    )

    async def drain(self, timeout_s: float) -> None:
        """Wait until the server has counted all updates, and no event comes any more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while loop.time() < deadline and not all(one.broken for one in self._connections):
            self._sum_up()
            heard_of = (self.counters.taken or 0) + (self.counters.dropped or 0)
            quiet_us = self._clock() - self._events_at_us
            if heard_of >= self.counters.sent and quiet_us > _QUIET_S * 1e6:
                return
            await asyncio.sleep(_DRAIN_STEP_S)

    async def close(self) -> None:
        """The server withdraws what a connection declared."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            await connection.socket.close()

    def events_came(
        self,
        event_types: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        times_us: NDArray[np.int64],
    ) -> None:
        self._events_at_us = self._clock()
        self.counters.add(event_types, reasons, times_us, self._events_at_us)

    # Inside

    def _sum_up(self) -> None:
        self.counters.taken = sum(connection.taken for connection in self._connections)
        self.counters.dropped = sum(connection.dropped for connection in self._connections)

    async def _connect(self) -> ClientConnection:
        try:
            # A server that is slow to answer pings is being measured: do not disconnect.
            return await connect(
                self._uri,
                subprotocols=[Subprotocol(self.SUBPROTOCOL)],
                compression=None,
                max_size=None,
                ping_interval=None,
                close_timeout=2,
                proxy=None,
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as error:
            raise LoadError(f"cannot reach {self._uri}: {error}") from None

    async def _declare(
        self, connection: GatewayConnection, number: int, workload: Workload, say: Say
    ) -> None:
        count = self._connection_count
        declared = range(number, len(workload), count)
        try:
            await connection.socket.send(json.dumps({"op": "hello", "names": False, "n": "hello"}))
            await self._reply(connection)
            for begin in range(0, len(declared), _DECLARED_AT_ONCE):
                some = declared[begin : begin + _DECLARED_AT_ONCE]
                batch = [_declaration(workload, entity, entity // count) for entity in some]
                await connection.socket.send(json.dumps(batch, separators=(",", ":")))
                for reply in await self._reply(connection):
                    if "error" in reply:
                        raise LoadError(f"the server refuses the load: {reply['error']}")
                say(f"{some[-1] + 1:,} of {len(workload):,} entities declared")
        except ConnectionClosed as error:
            raise LoadError(f"{self._uri} closed the connection: {error}") from None
        except TimeoutError:
            raise LoadError(f"{self._uri} does not answer within {_REPLY_TIMEOUT_S:g} s") from None

    async def _reply(self, connection: GatewayConnection) -> list[dict[str, Any]]:
        """The server's answer; events that come before it are processed."""
        while True:
            frame = await asyncio.wait_for(connection.socket.recv(), _REPLY_TIMEOUT_S)
            replies = _objects_of(frame) if isinstance(frame, str) else []
            if replies and all("ok" in one or "error" in one for one in replies):
                return replies
            self.take_frame(connection, frame)

    async def _read(self, connection: GatewayConnection) -> None:
        try:
            async for frame in connection.socket:
                self.take_frame(connection, frame)
                self._sum_up()
        except ConnectionClosed as error:
            connection.broken = str(error)
        connection.broken = connection.broken or "the server closed it"
        self.counters.note(f"the connection broke: {connection.broken}")
        # Frames still queued were never sent.
        self.counters.sent -= connection.waiting_rows
        self.counters.unsent += connection.waiting_rows
        connection.waiting_rows = 0


class BinaryDriver(WebSocketDriver):
    """Updates and events as rows of bytes: no Python code runs for a single one."""

    SUBPROTOCOL = "mercury.binary.v1"

    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> bytes:
        rows = np.zeros(len(batch), MOVE_ROW)
        rows["handle"] = handles
        rows["lat_e7"] = to_e7(batch.lats)
        rows["lon_e7"] = to_e7(batch.lons)
        rows["accuracy_dm"] = min(round(self._accuracy_m * 10.0), 0xFFFF)
        rows["time_us"] = batch.times_us
        return pack_moves(rows)

    def take_frame(self, connection: GatewayConnection, frame: bytes | str) -> None:
        """Process events, or the server's progress."""
        if isinstance(frame, str):
            return  # declarations were answered before
        try:
            kind, rows = read_server_frame(frame)
        except PacketError:
            self.counters.note("the server sent frames that are not of mercury.binary.v1")
            return
        if kind == FrameType.EVENTS:
            self.events_came(rows["event_type"], rows["reason"], rows["time_us"])
        else:
            connection.taken, connection.dropped = int(rows["taken"][-1]), int(rows["dropped"][-1])


class JsonDriver(WebSocketDriver):
    """As a small program would: the updates of a moment are one list, answered by one list."""

    SUBPROTOCOL = "mercury.json.v1"

    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> str:
        columns = (handles, np.round(batch.lats, 7), np.round(batch.lons, 7), batch.times_us)
        common = {"op": "move", "accuracy_m": self._accuracy_m}
        moves = [
            {**common, "handle": handle, "lat": lat, "lon": lon, "time_us": time_us}
            for handle, lat, lon, time_us in zip(*(one.tolist() for one in columns), strict=True)
        ]
        return json.dumps(moves, separators=(",", ":"))

    def take_frame(self, connection: GatewayConnection, frame: bytes | str) -> None:
        """Process answers and events."""
        if not isinstance(frame, str):
            return
        events = []
        for one in _objects_of(frame):
            if "event" in one:
                event_type = _EVENT_TYPES.get(one["event"], 0)
                reason = _REASONS.get(one.get("reason", ""), 0)
                events.append((event_type, reason, one.get("time_us", 0)))
            elif "error" in one:
                connection.dropped += 1
                self.counters.note(f"the server refused updates, such as: {one['error']}")
            elif "ok" in one:
                connection.taken += 1
        if events:
            event_types, reasons, times_us = np.array(events, np.int64).T
            self.events_came(event_types.astype(np.uint8), reasons.astype(np.uint8), times_us)


def _objects_of(text: str) -> list[dict[str, Any]]:
    """The objects of a text frame: one, or a list of them."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]


def _declaration(workload: Workload, entity: int, handle: int) -> dict[str, Any]:
    what = workload.declaration(entity)
    common = {"id": what.id, "topic": what.topic, "ttl_s": what.ttl_s, "handle": handle}
    if isinstance(what, Publication):
        return {"op": "publish", **common, "values": dict(what.values)}
    scope = {"radius_m": what.radius_m, "where": what.where, "inside": what.inside}
    return {"op": "near", **common, **scope}
