"""What the binary and the JSON driver share: connections to the matcher's websocket gateway."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from mercury.load.drivers.api import BACKLOG_ROWS, Batch, Clock, Say
from mercury.load.tally import Tally
from mercury.load.workload import Workload
from mercury.model.errors import LoadError
from mercury.model.matching import Publication

PATH = "/v1/match"
MAX_HANDLES = 1 << 20  # of one connection
_DECLARED_AT_ONCE = 500
_UNANSWERED = 4  # lists of declarations, so that neither side waits for the other
_REPLY_TIMEOUT_S = 30.0
_SETTLE_STEP_S = 0.02
_QUIET_S = 0.3  # timeout: without an event, none is on its way


class Link:
    """One connection: frames that wait, and what the server says of those it got."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.waiting: deque[tuple[bytes | str, int]] = deque()  # frames, and the rows of each
        self.waiting_rows = 0
        self.taken = self.dropped = 0
        self.broken = ""
        self._more = asyncio.Event()

    def put(self, frame: bytes | str, rows: int) -> bool:
        """Let a frame wait for its turn; False if there is no room."""
        if self.broken or self.waiting_rows + rows > BACKLOG_ROWS:
            return False
        self.waiting.append((frame, rows))
        self.waiting_rows += rows
        self._more.set()
        return True

    async def write(self) -> None:
        """Send what waits, until cancelled or broken."""
        while True:
            while self.waiting:
                frame, rows = self.waiting.popleft()
                self.waiting_rows -= rows
                try:
                    await self.socket.send(frame)
                except ConnectionClosed:
                    return  # whoever reads says why
            self._more.clear()
            await self._more.wait()


class WebSocketDriver(ABC):
    """Declares by JSON, whatever its updates are; entities are dealt out over the connections."""

    SUBPROTOCOL: ClassVar[str]

    def __init__(self, host: str, port: int, path: str, connections: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        self._uri = f"ws://{shown}:{port}{path if path.strip('/') else PATH}"
        self._connections = connections
        self._links: list[Link] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._clock: Clock = lambda: 0
        self._accuracy_m = 0.0
        self._events_at_us = 0  # when the last ones came
        self.tally = Tally(taken=0, dropped=0)

    @abstractmethod
    def frame_of(self, batch: Batch, handles: NDArray[np.int64]) -> bytes | str:
        """Updates as the server takes them."""

    @abstractmethod
    def take_frame(self, link: Link, frame: bytes | str) -> None:
        """Look at what the server sent."""

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Connect, and declare everybody."""
        if len(workload) > MAX_HANDLES * self._connections:
            raise LoadError(
                f"a connection carries {MAX_HANDLES:,} entities:"
                f" {len(workload):,} need more than {self._connections}"
            )
        self._clock, self._accuracy_m = clock, workload.accuracy_m
        for _ in range(self._connections):
            self._links.append(Link(await self._connect()))
        for number, link in enumerate(self._links):
            await self._declare(link, number, workload, say)
        for link in self._links:
            self._tasks += [
                asyncio.create_task(self._read(link)),
                asyncio.create_task(link.write()),
            ]

    def send(self, batch: Batch) -> None:
        """Put frames on the connections of the entities."""
        count = len(self._links)
        for number, link in enumerate(self._links):
            rows = batch
            if count > 1:
                rows = batch.some(batch.entities % count == number)
            if not len(rows):
                continue
            if link.put(self.frame_of(rows, rows.entities // count), len(rows)):
                self.tally.sent += len(rows)
            else:
                self.tally.unsent += len(rows)
                if not link.broken:
                    self.tally.note(
                        f"{BACKLOG_ROWS:,} updates waited for the server; what came then was not"
                        " sent"
                    )

    async def settle(self, timeout_s: float) -> None:
        """Until the server has said what became of all updates, and no event comes any more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while loop.time() < deadline and not all(link.broken for link in self._links):
            self._sum_up()
            heard_of = (self.tally.taken or 0) + (self.tally.dropped or 0)
            quiet_us = self._clock() - self._events_at_us
            if heard_of >= self.tally.sent and quiet_us > _QUIET_S * 1e6:
                return
            await asyncio.sleep(_SETTLE_STEP_S)

    async def close(self) -> None:
        """The server withdraws what a connection declared."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links:
            await link.socket.close()

    def events_came(
        self,
        event_types: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        times_us: NDArray[np.int64],
    ) -> None:
        """Count events."""
        self._events_at_us = self._clock()
        self.tally.tell(event_types, reasons, times_us, self._events_at_us)

    # Inside

    def _sum_up(self) -> None:
        self.tally.taken = sum(link.taken for link in self._links)
        self.tally.dropped = sum(link.dropped for link in self._links)

    async def _connect(self) -> ClientConnection:
        try:
            # A server that is slow to answer pings is what is looked for, and no reason to hang up.
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

    async def _declare(self, link: Link, number: int, workload: Workload, say: Say) -> None:
        declared = range(number, len(workload), self._connections)
        unanswered = 0
        try:
            await link.socket.send(json.dumps({"op": "hello", "names": False, "n": "hello"}))
            await self._reply(link)
            for begin in range(0, len(declared), _DECLARED_AT_ONCE):
                some = declared[begin : begin + _DECLARED_AT_ONCE]
                batch = [
                    _declaration(workload, entity, entity // self._connections) for entity in some
                ]
                await link.socket.send(json.dumps(batch, separators=(",", ":")))
                unanswered += 1
                if unanswered == _UNANSWERED:
                    await self._accepted(link)
                    unanswered -= 1
                say(f"{some[-1] + 1:,} of {len(workload):,} entities declared")
            for _ in range(unanswered):
                await self._accepted(link)
        except ConnectionClosed as error:
            raise LoadError(f"{self._uri} closed the connection: {error}") from None
        except TimeoutError:
            raise LoadError(f"{self._uri} does not answer within {_REPLY_TIMEOUT_S:g} s") from None

    async def _accepted(self, link: Link) -> None:
        for reply in await self._reply(link):
            if "error" in reply:
                raise LoadError(f"the server refuses the load: {reply['error']}")

    async def _reply(self, link: Link) -> list[dict[str, Any]]:
        """What the server answers; events that come before it are looked at."""
        while True:
            frame = await asyncio.wait_for(link.socket.recv(), _REPLY_TIMEOUT_S)
            replies = objects_of(frame) if isinstance(frame, str) else []
            if replies and all("ok" in one or "error" in one for one in replies):
                return replies
            self.take_frame(link, frame)

    async def _read(self, link: Link) -> None:
        try:
            async for frame in link.socket:
                self.take_frame(link, frame)
                self._sum_up()
        except ConnectionClosed as error:
            link.broken = str(error)
        link.broken = link.broken or "the server closed it"
        self.tally.note(f"the connection broke: {link.broken}")
        # What still waited never left.
        self.tally.sent -= link.waiting_rows
        self.tally.unsent += link.waiting_rows
        link.waiting_rows = 0


def objects_of(text: str) -> list[dict[str, Any]]:
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
