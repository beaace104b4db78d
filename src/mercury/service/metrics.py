"""`/metrics` for Prometheus, `/livez` and `/healthz`, on the service's own event loop."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mercury.net.ports import address_in_use
from mercury.service.statistics import Statistics

_TIMEOUT_S = 5.0


class MetricsServer(Collector):
    """A very small HTTP server for three read-only pages."""

    def __init__(
        self,
        part: str,
        at: tuple[str, int],
        statistics: Callable[[], Statistics],
        more: Callable[[], Iterable[Metric]] = tuple,
        health: Callable[[], tuple[str, str]] = lambda: ("ok", ""),
    ) -> None:
        self._part = part
        self._at = at
        self._health = health  # "ok", or what else it is, and a sentence on why
        self._statistics = statistics
        self._more = more
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; port 0 picks a free one."""
        try:
            self._server = await asyncio.start_server(self._handle, *self._at)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise address_in_use("TCP", *self._at, "metrics") from None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def collect(self) -> Iterable[Metric]:
        is_ok = self._health()[0] == "ok"
        healthy = GaugeMetricFamily("mercury_healthy", "1 while /healthz says ok", value=is_ok)
        return (healthy, *self._statistics().metrics(self._part), *self._more())

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                request = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
                status, kind, body = self._answer(request)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # ignore a broken or slow reader
        finally:
            writer.close()

    def _answer(self, request: list[str]) -> tuple[str, str, bytes]:
        if len(request) < 2 or request[0] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"GET only\n"
        match request[1].split("?")[0]:
            case "/metrics":
                return "200 OK", "text/plain; version=0.0.4", generate_latest(self._registry)
            case "/livez":  # any answer means alive
                return "200 OK", "text/plain", b"alive\n"
            case "/healthz":
                status, reason = self._health()
                health = {"status": status, "part": self._part, **self._statistics().gauges}
                health |= {"reason": reason} if reason else {}
                code = "200 OK" if status == "ok" else "503 Service Unavailable"
                return code, "application/json", json.dumps(health).encode() + b"\n"
        return "404 Not Found", "text/plain", b"/metrics, /livez or /healthz\n"
