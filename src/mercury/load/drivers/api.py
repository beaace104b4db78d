"""The interface of drivers, and which one a URI selects."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.load.counters import LoadCounters
from mercury.load.workload import Workload
from mercury.model.errors import LoadError

Clock = Callable[[], int]  # microseconds since the epoch, never going back
Say = Callable[[str], None]

# Limit of queued rows, if the other side is slow; further ones are counted as unsent.
BACKLOG_ROWS = 1_000_000


class Batch(NamedTuple):
    """Updates that are due, in order."""

    entities: NDArray[np.int64]
    lats: FloatArray
    lons: FloatArray
    times_us: NDArray[np.int64]  # when they were due
    times_s: FloatArray  # the same, counted from the begin of the run

    def __len__(self) -> int:
        return len(self.entities)

    def some(self, rows: slice | NDArray[np.bool_]) -> Batch:
        entities, lats, lons, times_us, times_s = self
        return Batch(entities[rows], lats[rows], lons[rows], times_us[rows], times_s[rows])


class Driver(Protocol):
    """Sends updates to a system and counts the events."""

    @property
    def counters(self) -> LoadCounters:
        """The counts so far."""

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Connect and declare the entities; raises LoadError."""

    def send(self, batch: Batch) -> None:
        """Queue updates. Never waits: above the limit they count as unsent."""

    async def drain(self, timeout_s: float) -> None:
        """Wait for outstanding events."""

    async def close(self) -> None:
        """Withdraw the entities and disconnect."""


def open_driver(uri: str, *, connections: int = 1) -> Driver:
    """A driver for `ws://`, `ws+json://`, `udp://`, `redis://HOST:PORT`, `null:` or `file:PATH`."""
    scheme, colon, rest = uri.partition(":")
    opener = OPENERS.get(scheme)
    if not colon or opener is None:
        known = ", ".join(f"{name}:" for name in OPENERS)
        raise LoadError(f"load cannot go to {uri!r}; an address starts with {known}")
    if connections < 1:
        raise LoadError("at least one connection is needed")
    try:
        return opener(rest, connections)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("websockets", "redis"):
            raise
        raise LoadError(
            f"{scheme}: needs the package {error.name}: pip install 'mercury-messaging[load]'"
        ) from None


def host_and_port(scheme: str, rest: str) -> tuple[str, int, str]:
    """Host, port and path of `//HOST:PORT/PATH`."""
    try:
        parts = urlsplit(f"{scheme}:{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise LoadError(f"{scheme}:{rest} is no address, expected {scheme}://HOST:PORT")
    return host, port, parts.path


def _load(module: str, name: str) -> Callable[..., Driver]:
    """Import a driver's class, with the packages that it needs."""
    found: Callable[..., Driver] = getattr(import_module(f"mercury.load.drivers.{module}"), name)
    return found


def _open_redis(rest: str, connections: int) -> Driver:
    host, port, path = host_and_port("redis", rest)
    if path.strip("/") and not path.strip("/").isdigit():
        raise LoadError(f"redis:{rest} is no address, expected redis://HOST:PORT/NUMBER")
    return _load("redis_geo", "RedisDriver")(host, port, int(path.strip("/") or 0))


OPENERS: dict[str, Callable[[str, int], Driver]] = {
    "ws": lambda rest, connections: _load("websocket", "BinaryDriver")(
        *host_and_port("ws", rest), connections
    ),
    "ws+json": lambda rest, connections: _load("websocket", "JsonDriver")(
        *host_and_port("ws+json", rest), connections
    ),
    "udp": lambda rest, _: _load("udp", "UdpDriver")(*host_and_port("udp", rest)[:2]),
    "redis": _open_redis,
    "null": lambda rest, _: _load("local", "NullDriver")(),
    "file": lambda rest, _: _load("local", "TraceFileDriver")(rest),
}
