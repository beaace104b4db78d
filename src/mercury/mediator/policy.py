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
    """Which policy a message gets: its own or the one set for its kind or topic, if stronger.

    `of_kind` and `of_topic` say how much trouble a kind or a topic is worth; the topic's word goes
    before the kind's.
    """

    def __init__(
        self,
        policies: Mapping[DeliveryPolicy, Policy] = BY_STRENGTH,
        of_kind: Mapping[str, DeliveryPolicy] | None = None,
        of_topic: Mapping[str, DeliveryPolicy] | None = None,
    ) -> None:
        self._policies = dict(policies)
        self._of_kind = dict(of_kind or {})
        self._of_topic = dict(of_topic or {})

    def strength(self, kind: str, topic: str, said: int) -> DeliveryPolicy:
        """How much trouble a message is worth that says `said` about itself."""
        usual = self._of_topic.get(topic, self._of_kind.get(kind, DeliveryPolicy.FIRE_AND_FORGET))
        return DeliveryPolicy(max(said, usual))

    def of(self, kind: str, topic: str, said: int) -> Policy:
        """The policy of a message that says `said` about itself."""
        return self._policies[self.strength(kind, topic, said)]

    def __getitem__(self, strength: DeliveryPolicy) -> Policy:
        return self._policies[strength]
