"""The signals that ask a process to finish and end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Call `stop` on Ctrl-C, on SIGTERM, and when the terminal is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What is ignored stays so: `nohup` asks for it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
