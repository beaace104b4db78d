"""Vehicles that talk over a hostile network, each through its mediator."""

from __future__ import annotations

import json
import random
from collections import Counter

from mercury.mediator import Arrival, Mediator, Policies
from mercury.testing.network import HostileNetwork

NAMES = ("abe", "ben", "cal")


class Vehicle:
    """A mediator and what its applications were given."""

    def __init__(self, name: str, seed: int, policies: Policies | None = None) -> None:
        self.name = name
        self.mediator = Mediator(
            name, random.Random(seed), begun_us=1_000_000, policies=policies or Policies()
        )
        self.heard: Counter[str] = Counter()  # by id


class Road:
    """Vehicles, the network between them, and a clock that only the test moves."""

    def __init__(self, network: HostileNetwork[str], names: tuple[str, ...] = NAMES) -> None:
        self.network = network
        self.now = 0.0
        self.vehicles = {name: Vehicle(name, number) for number, name in enumerate(names)}
        self.packets: Counter[str] = Counter()
        for vehicle in self.vehicles.values():
            for mate in names:
                if mate != vehicle.name:
                    vehicle.mediator.join(mate, 0.0)

    def flush(self) -> None:
        """Send what is due, now."""
        for vehicle in self.vehicles.values():
            mediator = vehicle.mediator
            for copy in mediator.due(self.now):
                self._send("copy", vehicle.name, copy.mate, [copy.id, copy.acknowledge])
            for mate, ids in mediator.acks_due(self.now):
                self._send("ack", vehicle.name, mate, ids)

    def step(self) -> bool:
        """Go on to the next thing that happens; False when nothing ever will."""
        times = [vehicle.mediator.next_timer() for vehicle in self.vehicles.values()]
        times.append(self.network.next_due())
        pending = [time for time in times if time is not None]
        if not pending:
            return False
        self.advance_to(max(min(pending), self.now))
        return True

    def advance_to(self, time: float) -> None:
        """Let everything happen that is due by then."""
        self.now = time
        for data, source, destination in self.network.due(time):
            kind, content = json.loads(data)
            vehicle = self.vehicles[destination]
            if kind == "ack":
                for id in content:
                    vehicle.mediator.acknowledged(source, id, time)
            else:
                id, acknowledge = content
                arrival = vehicle.mediator.receive(source, id, time, acknowledge=acknowledge)
                if arrival is Arrival.NEW:
                    vehicle.heard[id] += 1
        self.flush()

    def run(self, until: float) -> None:
        """Let time pass, each thing at its own moment."""
        while True:
            before = self.now
            times = [vehicle.mediator.next_timer() for vehicle in self.vehicles.values()]
            times.append(self.network.next_due())
            coming = min((time for time in times if time is not None), default=until)
            self.advance_to(min(max(coming, before), until))
            if self.now >= until:
                return

    def _send(self, kind: str, source: str, destination: str, content: list[object]) -> None:
        self.packets[kind] += 1
        self.network.send(json.dumps([kind, content]).encode(), source, destination, self.now)
