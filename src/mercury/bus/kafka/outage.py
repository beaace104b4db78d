"""Decides what to log of an unreachable cluster: one line when it goes, one when it is back.

Kafka clients report errors many times a second, late and all at once. An error here only makes an
outage possible; a request to the cluster then shows whether it is reachable.
"""

from __future__ import annotations

import logging

PROBE_INTERVAL_S = 0.5

# How librdkafka's lines begin on lost connections, unanswered requests, what it tries again, a
# cluster that is another or has lost its topics, and partitions that have no leader yet. Fatal
# errors are handed to the program as well.
_CONNECTION = (
    "FAIL ",
    "REQTMOUT ",
    "SESSTMOUT ",
    "GETPID ",
    "CLUSTERID ",
    "PARTCNT ",
    "METADATAUPDATE ",
    "FATAL ",
)


class Outage:
    """The state of a cluster's outage, if any."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_errors = False
        self._away_since: float | None = None
        self._probe_at = 0.0

    def note_error(self) -> None:
        """A client lost its connection or got no answer."""
        self._has_errors = True

    def away_s(self, now: float) -> float:
        """How long the cluster has been unreachable."""
        return 0.0 if self._away_since is None else now - self._away_since

    def probe_due(self, now: float) -> bool:
        """Whether to probe the cluster now."""
        return (self._has_errors or self._away_since is not None) and now >= self._probe_at

    def probed(self, answered: bool, now: float) -> tuple[int, str] | None:
        """The cluster was probed: return what to log, if anything, and at which level."""
        self._has_errors = False
        self._probe_at = now + PROBE_INTERVAL_S
        since = self._away_since
        if answered and since is not None:
            self._away_since = None
            return logging.WARNING, f"{self._name} is back after {now - since:.0f} s"
        if not answered and since is None:
            self._away_since = now
            text = f"{self._name} cannot be reached; records wait here until it is back"
            return logging.WARNING, text
        return None


def is_not_about_connections(record: logging.LogRecord) -> bool:
    """Filter out clients' own log lines on lost connections: the outage is logged once."""
    return not record.getMessage().startswith(_CONNECTION)
