"""A wire between two network namespaces that is our own lossy link: two TUN devices and a thread.

For kernels without `tc netem`. The processes at its ends use real sockets and the real IP stack.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import select
import struct
import threading
import time

from mercury.net import Link
from mercury.net.link import Direction

_TUNSETIFF = 0x400454CA
_IFF_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_LONGEST_BYTES = 65_536
_IPV4 = 4


class TunWire:
    """Carries IPv4 packets between two devices; `up` is from the first to the second."""

    def __init__(self, devices: tuple[str, str], link: Link) -> None:
        self._link = link
        self._tuns: list[int] = []
        self._stop_reader, self._stop_writer = os.pipe()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        try:
            for device in devices:
                self._tuns.append(_open_tun(device))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begin to carry, once the devices are where they belong."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and take the devices away."""
        if self._thread.is_alive():
            os.write(self._stop_writer, b"x")
            self._thread.join()
        for descriptor in (*self._tuns, self._stop_reader, self._stop_writer):
            os.close(descriptor)

    def _carry(self) -> None:
        flying: list[tuple[float, int, int, bytes]] = []  # arrival, number, to, packet
        flown = 0
        directions: dict[int, tuple[Direction, int]] = {
            self._tuns[0]: ("up", self._tuns[1]),
            self._tuns[1]: ("down", self._tuns[0]),
        }
        while True:
            wait_s = max(0.0, flying[0][0] - time.monotonic()) if flying else None
            readable, _, _ = select.select([*directions, self._stop_reader], [], [], wait_s)
            if self._stop_reader in readable:
                return
            now = time.monotonic()
            for descriptor in readable:
                direction, to = directions[descriptor]
                packet = os.read(descriptor, _LONGEST_BYTES)
                if packet[0] >> 4 != _IPV4:  # what IPv6 says of itself would use up dice
                    continue
                for arrival in self._link.carry(direction, len(packet), now):
                    flown += 1
                    heapq.heappush(flying, (arrival, flown, to, packet))
            while flying and flying[0][0] <= now:
                _, _, to, packet = heapq.heappop(flying)
                with contextlib.suppress(OSError):  # the other device is down: lost
                    os.write(to, packet)


def _open_tun(device: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    try:
        request = struct.pack("16sH22x", device.encode(), _IFF_TUN_WITHOUT_HEADER)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
