"""How much trouble is taken to deliver a message, by name and by what the message is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mercury.model.message import DeliveryPolicy


@dataclass(frozen=True, slots=True)
class Policy:
    """When a message is sent again (pMediator §5).

    `max_tries` counts the repetitions after the first time, as in the paper; None goes on until
    the message expires. The wait grows by `backoff` with each try, up to `max_wait_s`, and varies
    by the share `jitter`, so that those who lost the same message do not ask in step.
    """

    name: str
    acknowledge: bool = True  # whether an answer is asked for
    resend_after_s: float = 2.0
    max_tries: int | None = 5
    backoff: float = 1.0
    max_wait_s: float = 30.0
    jitter: float = 0.1

    def waits_s(self, tries: NDArray[np.uint16], rng: np.random.Generator) -> NDArray[np.float64]:
        """How long to wait for an answer after so many tries."""
        # Beyond 64 the limit holds long since, and powers would overflow.
        grown = self.resend_after_s * self.backoff ** np.minimum(tries - 1.0, 64.0)
        waits: NDArray[np.float64] = np.minimum(grown, max(self.max_wait_s, self.resend_after_s))
        if self.jitter:
            waits *= 1.0 + self.jitter * rng.uniform(-1.0, 1.0, len(waits))
        return waits


FIRE_AND_FORGET = Policy("fire-and-forget", acknowledge=False, max_tries=0)
REPEAT = Policy("repeat")
CRITICAL = Policy("critical", resend_after_s=0.5, max_tries=None, backoff=1.5, max_wait_s=5.0)

BY_STRENGTH = {
    DeliveryPolicy.FIRE_AND_FORGET: FIRE_AND_FORGET,
    DeliveryPolicy.REPEAT: REPEAT,
    DeliveryPolicy.CRITICAL: CRITICAL,
}
NAMES = {policy.name: strength for strength, policy in BY_STRENGTH.items()}


class Policies:
    """Which policy a message gets.

    `rules` says how much trouble a kind (`alert`, `event`, `content`) or a topic is worth, and
    how; the word about a topic goes before the word about a kind. A message that asks for more
    trouble itself gets the named policy it asks for.
    """

    def __init__(
        self,
        rules: Mapping[str, tuple[DeliveryPolicy, Policy]] | None = None,
        named: Mapping[DeliveryPolicy, Policy] = BY_STRENGTH,
    ) -> None:
        self._rules = dict(rules or {})
        self._named = {**BY_STRENGTH, **named}
        self._otherwise = (DeliveryPolicy.FIRE_AND_FORGET, FIRE_AND_FORGET)

    def of(self, kind: str, topic: str, said: int) -> tuple[DeliveryPolicy, Policy]:
        """How much trouble a message is worth that says `said` about itself, and how."""
        rule = self._rules.get(topic) or self._rules.get(kind) or self._otherwise
        if said > rule[0]:
            # A policy that a newer version knows is at least as much trouble as ours.
            strength = DeliveryPolicy(min(said, DeliveryPolicy.CRITICAL))
            return strength, self._named[strength]
        return rule
