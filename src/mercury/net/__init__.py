"""UDP under asyncio, in batches, and lossy links to try it over."""

from mercury.net.link import Link, LinkStatistics, OneWay
from mercury.net.link_settings import Blackout, DropOff, LinkPair, LinkSettings, Outages, parse_link
from mercury.net.linked_endpoint import LinkedEndpoint, link_from, open_uplink
from mercury.net.udp import Packets, UdpEndpoint, bind_udp, parse_udp_uri, resolve, to_sockaddr

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
    "link_from",
    "open_uplink",
    "parse_link",
    "parse_udp_uri",
    "resolve",
    "to_sockaddr",
]
