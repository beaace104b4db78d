"""Recognises packets that were seen before (the sliding window of RFC 4303 §3.4.3)."""

from __future__ import annotations

WINDOW = 256
_MASK = (1 << WINDOW) - 1


class ReplayWindow:
    """Remembers which of the last sequence numbers have been seen."""

    __slots__ = ("highest", "seen")

    def __init__(self) -> None:
        self.highest = 0  # the greatest sequence number seen
        self.seen = 1  # bit i stands for `highest - i`

    def accept(self, sequence: int) -> bool:
        """Take note of a sequence number; False if it was seen or is too old to tell."""
        ahead = sequence - self.highest
        if ahead == 1:  # nearly always
            self.highest = sequence
            self.seen = ((self.seen << 1) | 1) & _MASK
            return True
        if ahead > 0:
            self.highest = sequence
            if ahead >= WINDOW:
                self.seen = 1
            else:
                self.seen = ((self.seen << ahead) | 1) & _MASK
            return True
        if ahead <= -WINDOW:
            return False
        bit = 1 << -ahead
        if self.seen & bit:
            return False
        self.seen |= bit
        return True
