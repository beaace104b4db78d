"""Measures how long the event loop is blocked."""

from __future__ import annotations

import asyncio

WINDOW_S = 2.0


class StallMeter:
    """Sleeps for a short time again and again, and measures how late it wakes."""

    def __init__(self, probe_s: float) -> None:
        self._probe_s = probe_s
        self._longest_s = [0.0, 0.0]  # in this window and in the one before

    @property
    def longest_s(self) -> float:
        """The longest stall of the last one to two windows."""
        return round(max(self._longest_s), 6)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        window_ends = loop.time() + WINDOW_S
        while True:
            begun = loop.time()
            await asyncio.sleep(self._probe_s)
            now = loop.time()
            self._longest_s[0] = max(self._longest_s[0], now - begun - self._probe_s)
            if now >= window_ends:
                window_ends = now + WINDOW_S
                self._longest_s = [0.0, self._longest_s[0]]
