"""Any course of events over a network that drops, repeats, delays and reorders.

The model is as plain as can be: who was sent what, until when, and how much trouble it is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from mediator.invariants import check_outgoing
from mediator.vehicles import NAMES, Road

from mercury.mediator import BY_STRENGTH
from mercury.model.delivery import DeliveryState
from mercury.model.message import DeliveryPolicy
from mercury.testing.network import HostileNetwork

names = st.sampled_from(NAMES)


@dataclass
class Sent:
    """What the model knows of one copy."""

    source: str
    mate: str
    policy: DeliveryPolicy
    posted: float
    expires: float


class MediatedMessages(RuleBasedStateMachine):
    """Vehicles post, come, go and fall silent; at the end everything is accounted for."""

    @initialize(seed=st.integers(0, 2**32), drop=st.sampled_from([0.0, 0.2, 0.5]))
    def begin(self, seed: int, drop: float) -> None:
        rest = (1.0 - drop) / 2
        self.road = Road(
            HostileNetwork(
                seed, deliver=rest, drop=drop, duplicate=rest / 2, delay=rest / 2, max_delay_s=3.0
            )
        )
        self.sent: dict[str, Sent] = {}
        self.cut: set[str] = set()

    @rule(
        source=names,
        mates=st.sets(names, min_size=1),
        policy=st.sampled_from(DeliveryPolicy),
        life_s=st.sampled_from([0.5, 5.0, 60.0, math.inf]),
        priority=st.integers(0, 9),
        ordered=st.booleans(),
    )
    def post(
        self,
        source: str,
        mates: set[str],
        policy: DeliveryPolicy,
        life_s: float,
        priority: int,
        ordered: bool,
    ) -> None:
        road = self.road
        to = sorted(mates - {source})
        ids = road.vehicles[source].mediator.post(
            "content",
            "topic",
            to,
            road.now,
            policy=policy,
            priority=priority,
            expires=road.now + life_s,
            ordered=ordered,
        )
        assert len(set(ids)) == len(to)
        assert not self.sent.keys() & set(ids)
        for id, mate in zip(ids, to, strict=True):
            self.sent[id] = Sent(source, mate, policy, road.now, road.now + life_s)
        road.flush()

    @rule(seconds=st.floats(0.01, 20.0))
    def wait(self, seconds: float) -> None:
        self.road.run(self.road.now + seconds)

    @rule(name=names)
    def fall_silent(self, name: str) -> None:
        self.road.network.cut(name)
        self.cut.add(name)

    @precondition(lambda self: self.cut)
    @rule()
    def be_heard_again(self) -> None:
        self._heal()

    @rule(source=names, mate=names)
    def lose_sight(self, source: str, mate: str) -> None:
        outgoing = self.road.vehicles[source].mediator.outgoing
        if source != mate:
            outgoing.left(outgoing.peers.number(mate))

    @rule(source=names, mate=names)
    def see_again(self, source: str, mate: str) -> None:
        if source != mate:
            self.road.vehicles[source].mediator.join(mate, self.road.now)

    @invariant()
    def nothing_is_passed_on_twice_or_to_another(self) -> None:
        for vehicle in self.road.vehicles.values() if hasattr(self, "road") else ():
            for id, count in vehicle.heard.items():
                assert count == 1, f"{id} was passed on {count} times"
                assert self.sent[id].mate == vehicle.name

    @invariant()
    def the_tables_are_in_order_and_add_up(self) -> None:
        for vehicle in self.road.vehicles.values() if hasattr(self, "road") else ():
            outgoing = vehicle.mediator.outgoing
            check_outgoing(outgoing)
            copies = [one for one in self.sent.values() if one.source == vehicle.name]
            assert outgoing.copies == len(copies)
            assert sum(outgoing.ended.values()) + outgoing.waiting == len(copies)

    @invariant()
    def nobody_tries_more_often_than_the_policy_says(self) -> None:
        for vehicle in self.road.vehicles.values() if hasattr(self, "road") else ():
            for dispatch in vehicle.mediator.outgoing:
                limit = BY_STRENGTH[self.sent[str(dispatch.id)].policy].max_tries
                if limit is not None and dispatch.policy.acknowledge:
                    assert dispatch.tries.max() <= limit + 1

    def _heal(self) -> None:
        for name in self.cut:
            self.road.network.heal(name)
        self.cut = set()

    def teardown(self) -> None:
        if not hasattr(self, "road"):
            return
        self._heal()
        for vehicle in self.road.vehicles.values():
            for mate in NAMES:
                if mate != vehicle.name:
                    vehicle.mediator.join(mate, self.road.now)
        for _ in range(100_000):  # tables always drain
            if not self.road.step():
                break
        else:
            raise AssertionError("it never ends")
        self.nothing_is_passed_on_twice_or_to_another()
        for vehicle in self.road.vehicles.values():
            outgoing = vehicle.mediator.outgoing
            outgoing.take_changes(self.road.now)
            assert outgoing.waiting == 0
            assert len(outgoing) == 0
            check_outgoing(outgoing)
        acknowledged = sum(
            vehicle.mediator.outgoing.ended[DeliveryState.ACKNOWLEDGED]
            for vehicle in self.road.vehicles.values()
        )
        heard = sum(len(vehicle.heard) for vehicle in self.road.vehicles.values())
        asked = [id for id, one in self.sent.items() if one.policy]
        assert acknowledged <= len(asked)
        assert heard >= acknowledged  # who answers has passed it on
        for id, one in self.sent.items():
            if one.policy is DeliveryPolicy.CRITICAL and math.isinf(one.expires):
                assert self.road.vehicles[one.mate].heard[id] == 1


MediatedMessages.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestMediatedMessages = MediatedMessages.TestCase
