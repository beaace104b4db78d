"""Network addresses: `udp://host:port`, and the raw sockaddr that sessions are mapped to.

The raw form is what the kernel hands out and takes. It is compared, stored in arrays and sent to
without ever being translated for each packet.
"""

from __future__ import annotations

import socket
import struct
import sys
from urllib.parse import urlsplit

from mercury.model.errors import ConfigurationError

_HAS_LENGTH_BYTE = sys.platform == "darwin" or "bsd" in sys.platform


def parse_udp_uri(uri: str) -> tuple[str, int]:
    """Return host and port of `udp://host:port`."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    else:
        if parts.scheme != "udp":
            host = None
    if host is None or port is None or not 0 < port < 65536:
        raise ConfigurationError(f"{uri!r} is no adapter address, expected udp://HOST:PORT")
    return host, port


def resolve(
    host: str, port: int, wanted: int = socket.AF_UNSPEC
) -> tuple[socket.AddressFamily, bytes]:
    """Return the family and raw sockaddr of a host's first UDP address, of a family if wanted."""
    try:
        found = socket.getaddrinfo(host, port, wanted, socket.SOCK_DGRAM)
    except OSError as error:
        raise ConfigurationError(f"cannot find the address of host {host!r}: {error}") from None
    family, _, _, _, address = found[0]
    return family, to_sockaddr(str(address[0]), int(address[1]))


def to_sockaddr(host: str, port: int) -> bytes:
    """Return the raw sockaddr of a numeric IPv4 or IPv6 address."""
    if ":" in host:
        numeric, _, zone = host.partition("%")
        scope = socket.if_nametoindex(zone) if zone and not zone.isdigit() else int(zone or 0)
        return (
            _family(socket.AF_INET6, 28)
            + struct.pack(">HI16s", port, 0, socket.inet_pton(socket.AF_INET6, numeric))
            + struct.pack("=I", scope)
        )
    return _family(socket.AF_INET, 16) + struct.pack(">H4s8x", port, socket.inet_aton(host))


def from_sockaddr(raw: bytes) -> tuple[str, int]:
    """Return host and port of a raw sockaddr."""
    if len(raw) >= 28:
        port, _flow, address = struct.unpack_from(">HI16s", raw, 2)
        return socket.inet_ntop(socket.AF_INET6, address), port
    port, address = struct.unpack_from(">H4s", raw, 2)
    return socket.inet_ntoa(address), port


def _family(family: int, size: int) -> bytes:
    return bytes((size, family)) if _HAS_LENGTH_BYTE else struct.pack("=H", family)
