"""Communities and lossy links on loopback: real sockets, and dice with a seed."""

from __future__ import annotations

import random
from collections import Counter

from moos.bridges import datagram

from mercury.moos.packet import MoosPacket, read_packet
from mercury.moos.settings import Endpoint
from mercury.net import Packets, UdpEndpoint, bind_udp, to_sockaddr


class Community:
    """A MOOS community's pShare: what it was sent, and a way to share a variable."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.posted: list[MoosPacket] = []
        self._endpoint = UdpEndpoint(bind_udp("127.0.0.1", 0), self._on_packets)

    @property
    def address(self) -> Endpoint:
        return Endpoint(*self._endpoint.address)

    def share(self, key: str, text: str, port: int) -> None:
        """Send a variable to a bridge."""
        self._endpoint.send([(datagram(key, text), to_sockaddr("127.0.0.1", port))])

    def texts(self, key: str = "NODE_MESSAGE") -> Counter[str]:
        """How often each text of a variable was posted."""
        return Counter(packet.text for packet in self.posted if packet.key == key)

    def close(self) -> None:
        self._endpoint.close()

    def _on_packets(self, packets: Packets) -> None:
        self.posted += [read_packet(data) for data, _ in packets]


class LossyLink:
    """One direction of a link: loses and repeats what goes through it."""

    def __init__(self, seed: int, *, drop: float = 0.3, duplicate: float = 0.1) -> None:
        self.to_port: int | None = None  # where it leads; nothing passes until it is set
        self.passed: list[MoosPacket] = []
        self.lost = 0
        self._dice = random.Random(seed)
        self._drop = drop
        self._duplicate = duplicate
        self._endpoint = UdpEndpoint(bind_udp("127.0.0.1", 0), self._on_packets)

    @property
    def address(self) -> Endpoint:
        return Endpoint(*self._endpoint.address)

    def close(self) -> None:
        self._endpoint.close()

    def _on_packets(self, packets: Packets) -> None:
        for data, _ in packets:
            roll = self._dice.random()
            if roll < self._drop or self.to_port is None:
                self.lost += 1
                continue
            copies = 2 if roll > 1 - self._duplicate else 1
            self.passed += [read_packet(data)] * copies
            self._endpoint.send([(data, to_sockaddr("127.0.0.1", self.to_port))] * copies)
