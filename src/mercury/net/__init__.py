"""UDP under asyncio, in batches, and lossy links to try it over."""

from mercury.net.address import from_sockaddr, parse_udp_uri, resolve, to_sockaddr
from mercury.net.link import Link, LinkStatistics, OneWay
from mercury.net.link_settings import Blackout, DropOff, LinkPair, LinkSettings, Outages
from mercury.net.link_spec import link_from, parse_link
from mercury.net.linked_endpoint import LinkedEndpoint, open_endpoint
from mercury.net.udp import Packets, UdpEndpoint, bind_udp

__all__ = [
    "Blackout",
    "DropOff",
    "Link",
    "LinkPair",
    "LinkSettings",
    "LinkStatistics",
    "LinkedEndpoint",
    "OneWay",
    "Outages",
    "Packets",
    "UdpEndpoint",
    "bind_udp",
    "from_sockaddr",
    "link_from",
    "open_endpoint",
    "parse_link",
    "parse_udp_uri",
    "resolve",
    "to_sockaddr",
]
