"""Delivery policies: how often and how soon a message without acknowledgement is retried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mercury.model.message import DeliveryPolicy

_WINDOW_S = 1.0
_FEW = 20  # repeats, below which the rate is not changed
_SATURATED_BELOW = 0.2  # share of repeats answered; with fewer the link counts as saturated
_LEAST_SHARE = 0.02  # of the highest rate: never lower
_RISE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Policy:
    """When a message is sent again (pMediator §5).

    `max_tries` counts the repetitions after the first time, as in the paper; None goes on until
    the message expires. The wait grows by `backoff` with each try, up to `max_wait_s`, and varies
    by the share `jitter`, so that retries of one message do not synchronise.
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
        # Beyond 64 tries the limit is reached, and powers would overflow.
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

    `rules` has the policy of a kind (`alert`, `event`, `content`) or a topic; a topic's rule has
    precedence over a kind's. A message that asks for a stronger policy itself gets the one it
    asks for.
    """

    def __init__(self, rules: Mapping[str, tuple[DeliveryPolicy, Policy]]) -> None:
        self._rules = rules
        self._otherwise = (DeliveryPolicy.FIRE_AND_FORGET, FIRE_AND_FORGET)

    def of(self, kind: str, topic: str, said: int) -> tuple[DeliveryPolicy, Policy]:
        """The policy of a message that asks for `said` itself."""
        rule = self._rules.get(topic) or self._rules.get(kind) or self._otherwise
        if said > rule[0]:
            # An unknown policy of a newer version is taken for the strongest here.
            strength = DeliveryPolicy(min(said, DeliveryPolicy.CRITICAL))
            return strength, BY_STRENGTH[strength]
        return rule


class RepeatRateLimiter:
    """A rate of repeats: halved while most are unanswered, raised step by step otherwise.

    First tries are not limited. A saturated link would lose more of them to repeats: fewer
    repeats let it recover.
    """

    def __init__(self, highest_per_s: float, now: float = 0.0) -> None:
        self.highest_per_s = highest_per_s
        self.per_s = highest_per_s
        self._level = self._burst()
        self._level_time = now
        self._window_begins = now
        self._repeated = 0
        self._answered = 0

    def take(self, wanted: int, now: float) -> int:
        """How many of the wanted repeats may go out now; they count as sent."""
        self._judge(now)
        elapsed = max(0.0, now - self._level_time)
        self._level = min(self._level + elapsed * self.per_s, self._burst())
        self._level_time = now
        taken = min(wanted, int(self._level))
        self._level -= taken
        self._repeated += taken
        return taken

    def answered(self) -> None:
        self._answered += 1

    def next_s(self) -> float:
        """How long until another repeat may go out."""
        return max(1.0 - self._level, 0.0) / self.per_s

    def _judge(self, now: float) -> None:
        if now - self._window_begins < _WINDOW_S:
            return
        self._window_begins = now
        if 0 < self._repeated < _FEW:
            return  # too few: the next window is counted with this one
        if self._answered < _SATURATED_BELOW * self._repeated:
            self.per_s = max(self.per_s / 2, self.highest_per_s * _LEAST_SHARE)
        else:
            self.per_s = min(self.per_s + self.highest_per_s * _RISE_SHARE, self.highest_per_s)
        self._repeated = self._answered = 0

    def _burst(self) -> float:
        return max(self.per_s / 10, 1.0)
