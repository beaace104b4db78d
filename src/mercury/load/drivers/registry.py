"""Opens a driver by its URI."""

from __future__ import annotations

from collections.abc import Callable
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


def _open_binary(rest: str, connections: int) -> Driver:
    from mercury.load.drivers.binary import BinaryDriver

    return BinaryDriver(*host_and_port("ws", rest), connections)


def _open_json(rest: str, connections: int) -> Driver:
    from mercury.load.drivers.json_text import JsonDriver

    return JsonDriver(*host_and_port("ws+json", rest), connections)


def _open_udp(rest: str, connections: int) -> Driver:
    from mercury.load.drivers.udp import UdpDriver

    host, port, _ = host_and_port("udp", rest)
    return UdpDriver(host, port)


def _open_redis(rest: str, connections: int) -> Driver:
    from mercury.load.drivers.redis_geo import RedisDriver

    host, port, path = host_and_port("redis", rest)
    if path.strip("/") and not path.strip("/").isdigit():
        raise LoadError(f"redis:{rest} is no address, expected redis://HOST:PORT/NUMBER")
    return RedisDriver(host, port, int(path.strip("/") or 0))


def _open_null(rest: str, connections: int) -> Driver:
    from mercury.load.drivers.null import NullDriver

    return NullDriver()


def _open_file(rest: str, connections: int) -> Driver:
    from mercury.load.drivers.trace_file import TraceFileDriver

    return TraceFileDriver(rest)


OPENERS: dict[str, Callable[[str, int], Driver]] = {
    "ws": _open_binary,
    "ws+json": _open_json,
    "udp": _open_udp,
    "redis": _open_redis,
    "null": _open_null,
    "file": _open_file,
}
