"""A UDP endpoint behind a lossy link: what it sends and what arrives goes through the link."""

from __future__ import annotations

import asyncio
import heapq
import socket
import time
from collections.abc import Callable

from mercury.net.link import Direction, Link
from mercury.net.udp import Packets, UdpEndpoint

_Packet = tuple[bytes, bytes]

_EARLY_S = 0.0005  # event loops wake to the millisecond


class LinkedEndpoint:
    """What a UdpEndpoint is, as far as a client needs it, over a bad link."""

    def __init__(
        self,
        sock: socket.socket,
        on_packets: Callable[[Packets], None],
        link: Link,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = link
        self._endpoint = UdpEndpoint(sock, self._receive)
        self._on_packets = on_packets
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # On their way, ordered by time of arrival, then by order of sending.
        self._in_flight: list[tuple[float, int, Direction, _Packet]] = []
        self._taken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._open = True
        link.begin(clock())

    @property
    def socket(self) -> socket.socket:
        """The socket under the link."""
        return self._endpoint.socket

    @property
    def address(self) -> tuple[str, int]:
        """The local host and port."""
        return self._endpoint.address

    @property
    def unsendable(self) -> int:
        """Packets that came through the link and were refused by the network layer."""
        return self._endpoint.unsendable

    def send(self, packets: Packets) -> None:
        """Put packets on the link; each is sent when it comes out of it, if it does."""
        if self._open:
            self._carry("up", packets)

    def stop_receiving(self) -> None:
        """Hand over nothing more; sending goes on."""
        self._endpoint.stop_receiving()
        self._in_flight = [packet for packet in self._in_flight if packet[2] == "up"]
        heapq.heapify(self._in_flight)

    def close(self) -> None:
        """Close the socket; nothing is handed over or sent any more.

        What the link has taken up is on the air: it goes out before, though too early, so that
        a goodbye is not held back for ever.
        """
        if not self._open:
            return
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rest = [packet for _, _, direction, packet in sorted(self._in_flight) if direction == "up"]
        self._in_flight.clear()
        if rest:
            self._endpoint.send(rest)
        self._endpoint.close()

    def _receive(self, packets: Packets) -> None:
        self._carry("down", packets)

    def _carry(self, direction: Direction, packets: Packets) -> None:
        now = self._clock()
        for packet in packets:
            for arrival in self.link.carry(direction, len(packet[0]), now):
                self._taken += 1
                heapq.heappush(self._in_flight, (arrival, self._taken, direction, packet))
        self._hand_out()

    def _hand_out(self) -> None:
        """Send and hand over what has come through the link, and wait for the next."""
        now = self._clock() + _EARLY_S
        sent: Packets = []
        received: Packets = []
        while self._in_flight and self._in_flight[0][0] <= now:
            _, _, direction, packet = heapq.heappop(self._in_flight)
            (sent if direction == "up" else received).append(packet)
        self._set_timer()
        if sent:
            self._endpoint.send(sent)
        if received:
            self._on_packets(received)  # last: it may send, or close this endpoint

    def _set_timer(self) -> None:
        if not self._in_flight:
            return
        due = self._in_flight[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return  # wakes early enough, and then sets the timer anew
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._hand_out()


def open_endpoint(
    sock: socket.socket, on_packets: Callable[[Packets], None], link: Link | None
) -> UdpEndpoint | LinkedEndpoint:
    """An endpoint on a socket, behind the link if there is one."""
    if link is None:
        return UdpEndpoint(sock, on_packets)
    return LinkedEndpoint(sock, on_packets, link)
