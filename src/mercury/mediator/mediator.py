"""One vehicle's mediator (pMediator): what it sends to its mates, and what comes from them.

Between vehicles each copy has an id of its own, made of the sender's name and a counter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mercury.mediator.incoming import Arrival, Incoming
from mercury.mediator.outgoing import Outgoing
from mercury.mediator.policy import Policies
from mercury.mediator.report import Report, report
from mercury.model.message import DeliveryPolicy


class Copy(NamedTuple):
    """One message for one mate, to be sent now."""

    id: str
    mate: str
    topic: str
    content: Any
    acknowledge: bool


class Mediator:
    """Acknowledges, repeats, removes doubles and measures (pMediator §4, §5).

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
        ack_after_s: float = 0.0,
        resends_per_s: float = 1000.0,
        now: float = 0.0,
    ) -> None:
        self.name = name
        self.outgoing = Outgoing(rng, resends_per_s=resends_per_s, now=now)
        self.incoming = Incoming(ack_after_s=ack_after_s)
        self._policies = policies
        self._counter = begun_us

    @property
    def mates(self) -> list[str]:
        """Those that can be sent to."""
        peers = self.outgoing.peers
        return sorted(peers.name(one) for one in peers if peers.present[one])

    def join(self, mate: str, now: float) -> None:
        """A mate can be sent to; what waits for it is due."""
        self.outgoing.arrived(self.outgoing.peers.number(mate), now)

    def leave(self, mate: str) -> None:
        """A mate cannot be sent to until it joins again."""
        number = self.outgoing.peers.find(mate)
        if number is not None:
            self.outgoing.left(number)

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
            copies += [
                Copy(
                    str(dispatch.id),
                    mate,
                    dispatch.topic,
                    dispatch.content,
                    dispatch.policy.acknowledge,
                )
                for mate in self.outgoing.peers.names(peers)
            ]
        self.outgoing.take_news(now)
        return copies

    def acknowledged(self, mate: str, id: str, now: float) -> bool:
        """A mate says that a copy arrived; False if that was known, or is not ours."""
        number = self.outgoing.peers.find(mate)
        return number is not None and self.outgoing.acknowledged(number, id, now)

    def receive(self, mate: str, id: str, now: float, *, acknowledge: bool) -> Arrival:
        """A copy came from a mate; only what is NEW is passed on."""
        return self.incoming.receive(mate, id, now, acknowledge=acknowledge)

    def acks_due(self, now: float) -> list[tuple[str, list[str]]]:
        """Ids to acknowledge now, by mate."""
        return [
            (mate, [str(id) for id, _ in answers])
            for mate, answers in self.incoming.answers_due(now)
        ]

    def next_timer(self) -> float | None:
        """When `due` and `acks_due` want to be asked."""
        times = (self.outgoing.next_timer(), self.incoming.next_timer())
        return min((at for at in times if at is not None), default=None)

    def report(self, now: float) -> Report:
        """What was sent, repeated and lost, by mate and by variable (pMediator §8)."""
        return report(self.name, self.outgoing, self.incoming, now)
