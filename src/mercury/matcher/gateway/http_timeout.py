"""Closes a connection on which a request begins and does not go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    _Protocol = Any
else:
    _Protocol = AutoHTTPProtocol


def protocol_with_timeout(timeout_s: float) -> type[Any]:
    """uvicorn's protocol; it waits only so long for the head of a request, the first one too."""

    class Protocol(_Protocol):  # type: ignore[misc]
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = self.cycle
            at_work = cycle is not None and not cycle.response_complete
            if at_work or self.transport.get_protocol() is not self:  # a websocket has its own
                self._stop_waiting()
            elif self._late is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(timeout_s, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Protocol
