"""UDP under asyncio, in batches."""

from mercury.net.address import describe, from_sockaddr, parse_udp_uri, resolve, to_sockaddr
from mercury.net.udp import Packets, UdpEndpoint, bind_udp

__all__ = [
    "Packets",
    "UdpEndpoint",
    "bind_udp",
    "describe",
    "from_sockaddr",
    "parse_udp_uri",
    "resolve",
    "to_sockaddr",
]
