"""A network that loses, repeats, delays and damages packets, the same way for the same seed.

It has no sockets and no clock: `send` takes packets in, `due` hands out those whose time has come.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from mercury.net import LinkSettings, OneWay

Address = TypeVar("Address", bound=Hashable)


class Datagram(NamedTuple, Generic[Address]):
    """A packet as it arrives."""

    data: bytes
    source: Address
    destination: Address


@dataclass(slots=True)
class NetworkStatistics:
    """Packet counts; a packet that was duplicated can be delivered twice."""

    sent: int = 0
    delivered: int = 0
    dropped: int = 0
    duplicated: int = 0
    delayed: int = 0
    corrupted: int = 0
    cut_off: int = 0  # lost because an end was cut, on sending or on arrival


class HostileNetwork(Generic[Address]):
    """Each packet meets one fate: delivered, dropped, duplicated or delayed, by these shares.

    A packet takes `latency_s`; a delayed one, and the second copy of a duplicate, up to
    `max_delay_s` more, so that later packets overtake it. Apart from that, the share `corrupt` of
    all copies arrives damaged. The seed is in the repr: print it in failing tests.

    With a `link`, that decides instead of shares and times: these settings for each pair of
    ends and each direction apart, or what a function says carries from a source to a destination,
    such as the `up` of a vehicle's Link.
    """

    def __init__(
        self,
        seed: int,
        *,
        deliver: float = 0.7,
        drop: float = 0.1,
        duplicate: float = 0.1,
        delay: float = 0.1,
        corrupt: float = 0.0,
        latency_s: float = 0.01,
        max_delay_s: float = 1.0,
        link: LinkSettings | Callable[[Address, Address], OneWay] | None = None,
    ) -> None:
        shares = {"deliver": deliver, "drop": drop, "duplicate": duplicate, "delay": delay}
        for name, share in {**shares, "corrupt": corrupt}.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is a share between 0 and 1, not {share}")
        if not math.isclose(sum(shares.values()), 1):
            raise ValueError(f"the shares {shares} add up to {sum(shares.values()):g}, not to 1")
        if not (latency_s >= 0 and max_delay_s >= 0):
            raise ValueError(f"times are not negative: {latency_s=}, {max_delay_s=}")
        self.seed = seed
        self.shares = shares
        self.corrupt = corrupt
        self.latency_s = latency_s
        self.max_delay_s = max_delay_s
        self.statistics = NetworkStatistics()
        self._link = link
        self._ways: dict[tuple[Address, Address], OneWay] = {}
        self._random = random.Random(seed)
        self._cut: set[Address] = set()
        # Ordered by time of arrival, then by order of sending.
        self._queue: list[tuple[float, int, Datagram[Address]]] = []
        self._enqueued = 0

    def send(self, data: bytes, source: Address, destination: Address, now: float) -> None:
        """Put a packet on its way, or lose it."""
        self.statistics.sent += 1
        if self._is_cut(source, destination):
            self.statistics.cut_off += 1
            return
        if self._link is None:
            arrivals = self._arrivals(now)
        else:
            arrivals = self.way(source, destination).carry(len(data), now)
        self.statistics.dropped += not arrivals
        self.statistics.duplicated += len(arrivals) > 1
        for arrival in arrivals:
            self._enqueue(arrival, Datagram(bytes(data), source, destination))

    def due(self, now: float) -> list[Datagram[Address]]:
        """Return what has arrived by now, in order of arrival."""
        arrived = []
        while self._queue and self._queue[0][0] <= now:
            packet = heapq.heappop(self._queue)[2]
            if self._is_cut(packet.source, packet.destination):
                self.statistics.cut_off += 1
            else:
                self.statistics.delivered += 1
                arrived.append(packet)
        return arrived

    def next_due(self) -> float | None:
        """When the next packet arrives, or None when none is in flight."""
        return self._queue[0][0] if self._queue else None

    def cut(self, address: Address) -> None:
        """Black out an address: nothing leaves it or arrives there until it is healed."""
        self._cut.add(address)

    def heal(self, address: Address) -> None:
        """End the blackout of an address."""
        self._cut.discard(address)

    @property
    def in_flight(self) -> int:
        """Number of packets on their way."""
        return len(self._queue)

    def __repr__(self) -> str:
        if self._link is not None:
            return f"HostileNetwork(seed={self.seed}, link={self._link}, corrupt={self.corrupt})"
        shares = ", ".join(f"{name}={share}" for name, share in self.shares.items())
        return (
            f"HostileNetwork(seed={self.seed}, {shares}, corrupt={self.corrupt}, "
            f"latency_s={self.latency_s}, max_delay_s={self.max_delay_s})"
        )

    def way(self, source: Address, destination: Address) -> OneWay:
        """The link from one end to another, with its own statistics; needs a `link`."""
        if self._link is None:
            raise ValueError("this network has shares, no link")
        if callable(self._link):
            return self._link(source, destination)
        ends = source, destination
        if ends not in self._ways:
            self._ways[ends] = OneWay(self._link, random.Random(self._random.getrandbits(64)))
        return self._ways[ends]

    def _arrivals(self, now: float) -> list[float]:
        [fate] = self._random.choices(list(self.shares), list(self.shares.values()))
        soon = now + self.latency_s
        late = soon + self._random.uniform(0, self.max_delay_s)
        self.statistics.delayed += fate == "delay"
        return {"deliver": [soon], "drop": [], "duplicate": [soon, late], "delay": [late]}[fate]

    def _is_cut(self, source: Address, destination: Address) -> bool:
        return source in self._cut or destination in self._cut

    def _enqueue(self, time: float, packet: Datagram[Address]) -> None:
        if packet.data and self._random.random() < self.corrupt:
            self.statistics.corrupted += 1
            packet = packet._replace(data=self._damage(packet.data))
        self._enqueued += 1
        heapq.heappush(self._queue, (time, self._enqueued, packet))

    def _damage(self, data: bytes) -> bytes:
        if self._random.random() < 0.5:
            return data[: self._random.randrange(len(data))]
        damaged = bytearray(data)
        hits = self._random.randint(1, min(3, len(data)))
        for position in self._random.sample(range(len(data)), hits):
            damaged[position] ^= self._random.randint(1, 255)
        return bytes(damaged)
