"""Vehicles with a bridge each, a hostile network between them, and a clock that the test moves."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from mercury.moos.bridge import MoosBridge
from mercury.moos.packet import MoosPacket, read_packet, write_packet
from mercury.moos.settings import BridgeSettings, Endpoint
from mercury.moos.text_forms import NodeMessage, read_node_message, write_node_message
from mercury.testing.network import HostileNetwork

SOMEWHERE = Endpoint("127.0.0.1", 9)


def settings(name: str, *mates: str, **given: Any) -> BridgeSettings:
    """Settings of a vehicle with a route to each mate."""
    return BridgeSettings(
        name=name,
        community=name,
        listen=SOMEWHERE,
        local=SOMEWHERE,
        routes=dict.fromkeys(mates, SOMEWHERE),
        **given,
    )


def bridge(name: str, *mates: str, seed: int = 1, begun_us: int = 0, **given: Any) -> MoosBridge:
    """A bridge with a route to each mate."""
    return MoosBridge(settings(name, *mates, **given), random.Random(seed), begun_us=begun_us)


def datagram(key: str, text: str) -> bytes:
    """A variable as a community's pShare sends it."""
    return write_packet(MoosPacket(key, text, source="pApp", community="any", time_s=1.0))


def local(text: str) -> bytes:
    """A NODE_MESSAGE_LOCAL."""
    return datagram("NODE_MESSAGE_LOCAL", text)


class Fleet:
    """Bridges, and what their communities were told."""

    def __init__(self, network: HostileNetwork[str], *names: str, **given: Any) -> None:
        self.network = network
        self.now = 0.0
        self.heard: dict[str, Counter[str]] = {name: Counter() for name in names}
        self.sent: Counter[tuple[str, str, str]] = Counter()  # by source, mate and variable
        self.bridges = {
            name: bridge(name, *(other for other in names if other != name), seed=seed, **given)
            for seed, name in enumerate(names)
        }

    def say(self, name: str, message: NodeMessage) -> None:
        """An application of a vehicle says something."""
        self.bridges[name].receive(local(write_node_message(message)), self.now)
        self.flush()

    def flush(self) -> None:
        """Carry out what all bridges want to have posted now."""
        for name, one in self.bridges.items():
            for posting in one.due(self.now):
                data = one.datagram(posting, self.now)
                if posting.mate is None:
                    packet = read_packet(data)
                    assert packet.key == "NODE_MESSAGE"
                    assert not read_node_message(packet.text).ack_id
                    self.heard[name][packet.text] += 1
                else:
                    self.sent[name, posting.mate, posting.key] += 1
                    self.network.send(data, name, posting.mate, self.now)

    def run(self, until: float) -> None:
        """Let time pass, each thing at its own moment."""
        while self.now < until:
            times = [one.next_timer() for one in self.bridges.values()]
            times.append(self.network.next_due())
            coming = min((time for time in times if time is not None), default=until)
            self.now = min(max(coming, self.now), until)
            for data, _, destination in self.network.due(self.now):
                self.bridges[destination].receive(data, self.now)
            self.flush()
