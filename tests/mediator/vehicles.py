"""Vehicles that talk over a hostile network, each through its mediator."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mercury.mediator import Arrival, Incoming, Outgoing, Policies, Report
from mercury.mediator.report import report
from mercury.model.message import DeliveryPolicy
from mercury.testing.network import HostileNetwork

NAMES = ("abe", "ben", "cal")


class Copy(NamedTuple):
    """One message for one mate, to be sent now."""

    id: str
    mate: str
    topic: str
    content: Any
    acknowledge: bool


class Mediator:
    """Hosts the tables of one vehicle: a copy for each mate, with an id of its own.

    `begun_us` is the wall clock when this incarnation of the vehicle began: the counter goes on
    from there, so that no id of an earlier one comes again.
    """

    def __init__(
        self,
        name: str,
        rng: random.Random,
        *,
        begun_us: int,
        policies: Policies,
        resends_per_s: float = 1000.0,
    ) -> None:
        self.name = name
        self.outgoing = Outgoing(rng, resends_per_s=resends_per_s)
        self.incoming = Incoming(ack_after_s=0.0)
        self._policies = policies
        self._counter = begun_us

    @property
    def mates(self) -> list[str]:
        peers = self.outgoing.peers
        return sorted(peers.name(one) for one in peers if peers.present[one])

    def join(self, mate: str, now: float) -> None:
        """A mate can be sent to; what waits for it is due."""
        self.outgoing.arrived(self.outgoing.peers.number(mate), now)

    def post(
        self,
        content: Any,
        topic: str,
        mates: Iterable[str],
        now: float,
        *,
        policy: DeliveryPolicy = DeliveryPolicy.FIRE_AND_FORGET,
        priority: int = 4,
        expires: float = math.inf,
        ordered: bool = False,
    ) -> list[str]:
        """Take a message for mates; the policy of its topic holds, if that is stronger.

        pMediator §5: each destination has a copy with an id of its own. Returns the ids.
        """
        ids = []
        _, chosen = self._policies.of("message", topic, policy)
        for mate in dict.fromkeys(mates):
            self._counter += 1
            id = f"{self.name}_{self._counter}"
            peers = np.array([self.outgoing.peers.number(mate)], np.int32)
            self.outgoing.post(
                id,
                content,
                peers,
                now,
                policy=chosen,
                source=self.name,
                topic=topic,
                priority=priority,
                expires=expires,
                ordered=ordered,
            )
            ids.append(id)
        return ids

    def due(self, now: float) -> list[Copy]:
        """What is to be sent now; it counts as sent."""
        copies = []
        for dispatch, peers in self.outgoing.due(now):
            self.outgoing.sent(dispatch, peers, now)
            rest = dispatch.topic, dispatch.content, dispatch.policy.acknowledge
            mates = self.outgoing.peers.names(peers)
            copies += [Copy(str(dispatch.id), mate, *rest) for mate in mates]
        self.outgoing.take_changes(now)
        return copies

    def acknowledged(self, mate: str, id: str, now: float) -> bool:
        """A mate says that a copy arrived; False if that was known, or is not ours."""
        number = self.outgoing.peers.find(mate)
        return number is not None and self.outgoing.acknowledged(number, id, now)

    def next_timer(self) -> float | None:
        """When `due`, or `answers_due` of what came in, wants to be asked."""
        times = (self.outgoing.next_timer(), self.incoming.next_timer())
        return min((at for at in times if at is not None), default=None)

    def report(self, now: float) -> Report:
        """What was sent, repeated and lost, by mate and by variable (pMediator §8)."""
        return report(self.name, self.outgoing, self.incoming, now)


class Vehicle:
    """A mediator and what its applications were given."""

    def __init__(self, name: str, seed: int, policies: Policies | None = None) -> None:
        self.name = name
        self.mediator = Mediator(
            name, random.Random(seed), begun_us=1_000_000, policies=policies or Policies({})
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
            for mate, answers in mediator.incoming.answers_due(self.now):
                self._send("ack", vehicle.name, mate, [id for id, _ in answers])

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
                arrival = vehicle.mediator.incoming.receive(
                    source, id, time, acknowledge=acknowledge
                )
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
