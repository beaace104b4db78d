"""Opens a driver by its URI."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from urllib.parse import urlsplit

from mercury.load.drivers.api import Driver
from mercury.model.errors import LoadError


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
    """A driver's class; with its packages, which not all need."""
    found: Callable[..., Driver] = getattr(import_module(f"mercury.load.drivers.{module}"), name)
    return found


def _open_redis(rest: str, connections: int) -> Driver:
    host, port, path = host_and_port("redis", rest)
    if path.strip("/") and not path.strip("/").isdigit():
        raise LoadError(f"redis:{rest} is no address, expected redis://HOST:PORT/NUMBER")
    return _load("redis_geo", "RedisDriver")(host, port, int(path.strip("/") or 0))


OPENERS: dict[str, Callable[[str, int], Driver]] = {
    "ws": lambda rest, connections: _load("binary", "BinaryDriver")(
        *host_and_port("ws", rest), connections
    ),
    "ws+json": lambda rest, connections: _load("json_text", "JsonDriver")(
        *host_and_port("ws+json", rest), connections
    ),
    "udp": lambda rest, _: _load("udp", "UdpDriver")(*host_and_port("udp", rest)[:2]),
    "redis": _open_redis,
    "null": lambda rest, _: _load("null", "NullDriver")(),
    "file": lambda rest, _: _load("trace_file", "TraceFileDriver")(rest),
}
