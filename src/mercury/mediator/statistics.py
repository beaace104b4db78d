"""What is counted by topic (pMediator §8); what is counted by recipient stands in the peers."""

from __future__ import annotations

from mercury.mediator.peers import Numbers, Peers

_LISTED = 16  # recipients that are remembered for a topic


class TopicStatistics:
    """What was sent under one topic, or as one variable."""

    __slots__ = ("acknowledge", "mates", "resent", "sent", "since")

    def __init__(self, since: float, acknowledge: bool) -> None:
        self.since = since
        self.acknowledge = acknowledge
        self.sent = 0
        self.resent = 0
        self.mates: set[str] = set()  # some of those it went to

    def add(self, peers: Peers, numbers: Numbers) -> None:
        """Remember whom it went to, up to a number worth showing."""
        if len(self.mates) < _LISTED:
            self.mates.update(peers.names(numbers[:_LISTED]))

    def per_minute(self, now: float) -> float:
        """First sends a minute, since the first of them."""
        return 60.0 * self.sent / max(now - self.since, 1.0)
