"""The signals that ask a process to finish and end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Call `stop` on Ctrl-C, on SIGTERM, and when the terminal is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` asks for that
        loop.add_signal_handler(signal.SIGHUP, stop)
