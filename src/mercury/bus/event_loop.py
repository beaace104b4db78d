"""Calls into an event loop, from its own thread and from others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call inside a loop: at once if we are in it, else soon, and never if it is closed."""
    if running_loop() is loop:
        callback()
    else:
        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(callback)
