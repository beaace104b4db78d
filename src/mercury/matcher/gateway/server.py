"""The gateway's HTTP server, in the event loop of the process; it hands over WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import uvicorn
from websockets.frames import CloseCode

from mercury.config import GatewaySettings
from mercury.matcher.backend import MatchingBackend
from mercury.matcher.gateway.http_timeout import protocol_with_timeout
from mercury.matcher.gateway.pages import Pages
from mercury.matcher.gateway.register import Register
from mercury.matcher.gateway.websocket import MatchProtocol
from mercury.net.ports import bind_tcp
from mercury.service.statistics import Statistics

PROGRESS_S = 0.1
STOP_S = 2.0  # for responses in progress


class Gateway:
    """Matching over HTTP and websockets."""

    def __init__(
        self,
        hub: MatchingBackend,
        settings: GatewaySettings,
        health: Callable[[], tuple[str, str]] = lambda: ("ok", ""),
    ) -> None:
        self._settings = settings
        self._register = Register(hub, settings)
        self._pages = Pages(self._register, health)
        self._websockets: set[MatchProtocol] = set()
        self.port = settings.port  # the one taken, once started
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen and serve."""
        self._socket = bind_tcp(self._settings.host, self._settings.port, "the gateway")
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            self._pages.application(),
            http=protocol_with_timeout(self._settings.request_timeout_s),
            ws=cast(Any, lambda **_: MatchProtocol(self._register, self._websockets)),
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=max(1, round(self._settings.request_timeout_s)),
            timeout_graceful_shutdown=round(STOP_S),
        )
        self._server = _Server(config)
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        self._tasks = [serving, asyncio.create_task(self._report_progress())]
        while not self._server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        for stream in list(self._pages.streams):
            stream.end()
        for websocket in list(self._websockets):
            websocket.close(CloseCode.GOING_AWAY, "the gateway closes")
        if ends := [websocket.ended for websocket in self._websockets]:
            await asyncio.wait(ends, timeout=min(STOP_S, self._settings.close_timeout_s))
        for websocket in list(self._websockets):
            websocket.cut_off()
        if self._server is not None:
            self._server.should_exit = True
            self._server.asked_to_stop.set()
            await self._tasks[0]
            self._tasks[1].cancel()
            await asyncio.gather(self._tasks[1], return_exceptions=True)
        elif self._socket is not None:
            self._socket.close()

    def statistics(self) -> Statistics:
        return self._register.statistics()

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            for websocket in list(self._websockets):
                if websocket.connection is not None:
                    websocket.connection.report_progress()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.asked_to_stop = asyncio.Event()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # the time in responses, once a second
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.asked_to_stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the service handles signals
