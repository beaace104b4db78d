"""A timer that is set anew whenever what is due may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Calls back when something is due, or before; the callback sets it anew."""

    def __init__(self, callback: Callable[[], None], clock: Callable[[], float]) -> None:
        self._callback = callback
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0

    def set(self, due: float | None) -> None:
        """Call back at this time of the clock at the latest; None is never."""
        if self._handle is not None and due is not None and self._due <= due:
            return
        self.cancel()
        if due is not None:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(max(0.0, due - self._clock()), self._call)
            self._due = due

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _call(self) -> None:
        self._handle = None
        self._callback()
