"""Decides what to say of a cluster that is away: a sentence when it goes, one when it is back.

Clients complain many times a second, late and all at once. A complaint is only a suspicion here;
whether it holds is found out by asking the cluster.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

PROBE_INTERVAL_S = 0.5

# How librdkafka's lines begin on lost connections, unanswered requests and what it tries again.
_CONNECTION = ("FAIL ", "REQTMOUT ", "SESSTMOUT ", "GETPID ")


class Sentence(NamedTuple):
    """Something to log."""

    level: int
    text: str


class Outage:
    """What is known of a cluster's absence."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._suspected = False
        self._away_since: float | None = None
        self._probe_at = 0.0

    def suspect(self) -> None:
        """Some client lost its connection or got no answer."""
        self._suspected = True

    def probe_due(self, now: float) -> bool:
        """Whether to ask the cluster now if it is there."""
        return (self._suspected or self._away_since is not None) and now >= self._probe_at

    def probed(self, answered: bool, now: float) -> Sentence | None:
        """The cluster was asked: return what there is to say."""
        self._suspected = False
        self._probe_at = now + PROBE_INTERVAL_S
        since = self._away_since
        if answered and since is not None:
            self._away_since = None
            return Sentence(logging.INFO, f"{self._name} is back after {now - since:.0f} s")
        if not answered and since is None:
            self._away_since = now
            return Sentence(
                logging.WARNING,
                f"{self._name} cannot be reached; records wait here until it is back",
            )
        return None


class NoConnectionLines(logging.Filter):
    """Drops the clients' own lines on lost connections: the outage is told once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(_CONNECTION)
