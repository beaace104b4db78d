"""How fast messages are repeated: slower where repeating does not help."""

from __future__ import annotations

_WINDOW_S = 1.0
_FEW = 20  # repeats, below which nothing is concluded
_FALSE_CANDIDATES = 0.2  # share that was answered, below which the link counts as saturated
_LEAST_SHARE = 0.02  # of the highest rate: something always goes on
_RISE_SHARE = 0.1


class Pace:
    """A rate of repeats: halved while most are in vain, raised step by step otherwise.

    First tries are not held back. A link that carries no more than the first tries would carry
    fewer of them among repeats: giving way is what lets it recover.
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
        """How many of the wanted repeats may go out now; they count as gone."""
        self._judge(now)
        elapsed = max(0.0, now - self._level_time)
        self._level = min(self._level + elapsed * self.per_s, self._burst())
        self._level_time = now
        taken = min(wanted, int(self._level))
        self._level -= taken
        self._repeated += taken
        return taken

    def answered(self) -> None:
        """A message that was repeated has been answered."""
        self._answered += 1

    def next_s(self) -> float:
        """How long until another repeat may go out."""
        return max(1.0 - self._level, 0.0) / self.per_s

    def _judge(self, now: float) -> None:
        if now - self._window_begins < _WINDOW_S:
            return
        self._window_begins = now
        if 0 < self._repeated < _FEW:
            return  # too few to tell: the next window counts with this one
        if self._answered < _FALSE_CANDIDATES * self._repeated:
            self.per_s = max(self.per_s / 2, self.highest_per_s * _LEAST_SHARE)
        else:
            self.per_s = min(self.per_s + self.highest_per_s * _RISE_SHARE, self.highest_per_s)
        self._repeated = self._answered = 0

    def _burst(self) -> float:
        return max(self.per_s / 10, 1.0)
