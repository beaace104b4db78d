"""Decides whether a reader stands still: records wait, or its group goes on without it.

A Kafka client can remain in a state that it never leaves, after its cluster was away. It says
nothing then, and everything looks well. What a new client heals is found by looking now and then.
"""

from __future__ import annotations

from collections.abc import Mapping

CHECK_INTERVAL_S = 3.0
# A reader is not helped earlier: its group may wait 6 s for a member that died, and 2 s for the
# others to commit.
RENEW_S = 9.0
MAX_RENEW_S = 60.0
REPORT_S = 5.0

PartitionId = tuple[str, int]


class Standstill:
    """What is known of the progress of one reader; it is given what checks find."""

    def __init__(self) -> None:
        self._check_at = 0.0
        self._since: float | None = None
        self._renew_at = 0.0
        self._pause_s = RENEW_S
        self._waiting: dict[PartitionId, int] = {}  # where records waited at the last check
        self._in_vain: dict[PartitionId, int] = {}  # where a new client was tried already

    def check_due(self, now: float) -> bool:
        """Whether to look now."""
        return now >= self._check_at

    def lasts_s(self, now: float) -> float:
        """How long the reader has stood still."""
        return 0.0 if self._since is None else now - self._since

    def unknown(self, now: float) -> None:
        """The cluster does not answer: nobody can tell, and a new client would not help."""
        self._check_at = now + CHECK_INTERVAL_S
        self._since = None
        self._waiting = {}

    def checked(self, has_joined: bool, waiting: Mapping[PartitionId, int], now: float) -> bool:
        """The cluster answered: return whether to go on with a new client.

        Args:
            has_joined: whether the group, if any, has assigned partitions to the reader
            waiting: the positions at which records wait that could have been fetched
            now: the time
        """
        self._check_at = now + CHECK_INTERVAL_S
        # Records that have just come are on their way. What even a new client could not fetch is
        # no record, but the mark at the end of a transaction.
        standing = {
            partition_id: offset
            for partition_id, offset in waiting.items()
            if self._waiting.get(partition_id) == offset
            and self._in_vain.get(partition_id) != offset
        }
        self._waiting = dict(waiting)
        if has_joined and not standing:
            self._since = None
            self._pause_s = RENEW_S
            return False
        if self._since is None:
            self._since = now
            self._renew_at = now + self._pause_s
        if now < self._renew_at:
            return False
        self._in_vain.update(standing)
        self._pause_s = min(2 * self._pause_s, MAX_RENEW_S)
        self._renew_at = now + self._pause_s
        return True
