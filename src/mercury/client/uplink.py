"""The socket between a client and its adapter."""

from __future__ import annotations

from collections.abc import Callable

from mercury.net import (
    Link,
    LinkedEndpoint,
    Packets,
    UdpEndpoint,
    bind_udp,
    open_endpoint,
    parse_udp_uri,
    resolve,
)

_SOCKET_BUFFER_BYTES = 256 * 1024


def open_uplink(
    uri: str, on_packets: Callable[[Packets], None], link: Link | None
) -> tuple[UdpEndpoint | LinkedEndpoint, bytes]:
    """Bind a socket to speak with an adapter; returns it and the adapter's address."""
    host, port = parse_udp_uri(uri)
    family, adapter = resolve(host, port)
    any_host = "::" if ":" in host or family.name == "AF_INET6" else "0.0.0.0"
    local = {"127.0.0.1": "127.0.0.1", "localhost": any_host}.get(host, any_host)
    sock = bind_udp(local, 0, buffer_bytes=_SOCKET_BUFFER_BYTES)
    return open_endpoint(sock, on_packets, link), adapter
