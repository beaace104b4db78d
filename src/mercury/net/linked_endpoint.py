"""A client's endpoint, plain or behind a lossy link that all it sends and receives goes through."""

from __future__ import annotations

import heapq
import os
import random
import socket
import time
from collections.abc import Callable
from functools import partial

from mercury.net.link import Direction, Link
from mercury.net.link_settings import LinkPair, parse_link
from mercury.net.timer import Timer
from mercury.net.udp import Packets, UdpEndpoint, bind_udp, parse_udp_uri, resolve

_UPLINK_BUFFER_BYTES = 256 * 1024
_EARLY_S = 0.0005  # event loops wake to the millisecond


class LinkedEndpoint(UdpEndpoint):
    """An endpoint as a client needs it, over a bad link."""

    def __init__(
        self, sock: socket.socket, on_packets: Callable[[Packets], None], link: Link
    ) -> None:
        super().__init__(sock, partial(self._carry, "down"))
        self.link = link
        self._on_arrived = on_packets
        # On their way, ordered by time of arrival, then by order of sending.
        self._in_flight: list[tuple[float, int, Direction, tuple[bytes, bytes]]] = []
        self._taken = 0
        self._timer = Timer(self._hand_out, time.monotonic)
        link.begin(time.monotonic())

    def send(self, packets: Packets) -> None:
        """Put packets on the link; each is sent when it comes out of it, if it does."""
        if self._fd >= 0:
            self._carry("up", packets)

    def stop_receiving(self) -> None:
        """Deliver no more packets; sending continues."""
        super().stop_receiving()
        self._in_flight = [packet for packet in self._in_flight if packet[2] == "up"]
        heapq.heapify(self._in_flight)

    def close(self) -> None:
        """Close the socket; nothing is delivered or sent any more.

        Packets in the link are sent before, though too early, so that the last message of a session
        is not lost.
        """
        if self._fd < 0:
            return
        self._timer.cancel()
        rest = [packet for _, _, direction, packet in sorted(self._in_flight) if direction == "up"]
        self._in_flight.clear()
        if rest:
            super().send(rest)
        super().close()

    def _carry(self, direction: Direction, packets: Packets) -> None:
        now = time.monotonic()
        for packet in packets:
            for arrival in self.link.carry(direction, len(packet[0]), now):
                self._taken += 1
                heapq.heappush(self._in_flight, (arrival, self._taken, direction, packet))
        self._hand_out()

    def _hand_out(self) -> None:
        """Send and hand over what has come through the link, and wait for the next."""
        now = time.monotonic() + _EARLY_S
        sent: Packets = []
        received: Packets = []
        while self._in_flight and self._in_flight[0][0] <= now:
            _, _, direction, packet = heapq.heappop(self._in_flight)
            (sent if direction == "up" else received).append(packet)
        if self._in_flight:
            self._timer.set(self._in_flight[0][0])
        if sent:
            super().send(sent)
        if received:
            self._on_arrived(received)  # last: it may send, or close this endpoint


def link_from(link: Link | LinkPair | str, seed: object) -> Link:
    """A link as it is, or a new one with dice of this seed; None is a seed of its own."""
    if isinstance(link, Link):
        return link
    pair = parse_link(link) if isinstance(link, str) else link
    # Not the seed itself, which may be used elsewhere: its random numbers would be the same.
    rng = random.Random(os.urandom(16) if seed is None else f"link {seed}")
    return Link(pair.up, pair.down, rng)


def open_uplink(
    uri: str, on_packets: Callable[[Packets], None], link: Link | None
) -> tuple[UdpEndpoint, bytes]:
    """Open an endpoint to speak with an adapter, behind a link; returns it and the address."""
    host, port = parse_udp_uri(uri)
    family, adapter = resolve(host, port)
    any_host = "::" if ":" in host or family.name == "AF_INET6" else "0.0.0.0"
    local = host if host == "127.0.0.1" else any_host
    sock = bind_udp(local, 0, buffer_bytes=_UPLINK_BUFFER_BYTES)
    if link is None:
        return UdpEndpoint(sock, on_packets), adapter
    return LinkedEndpoint(sock, on_packets, link), adapter
