"""A clock that moves only when a test says so."""

from __future__ import annotations


class SteppableClock:
    """Pass it wherever a clock is called: `clock()` is the time in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    @property
    def now(self) -> float:
        return self._now

    def advance(self, duration_s: float) -> float:
        """Move on by a duration, and return the new time."""
        return self.advance_to(self._now + duration_s)

    def advance_to(self, now: float) -> float:
        """Move on to this time, and return it."""
        if not now >= self._now:  # also refuses NaN
            raise ValueError(f"a clock does not go back from {self._now} to {now}")
        self._now = now
        return now

    def __repr__(self) -> str:
        return f"SteppableClock({self._now})"
