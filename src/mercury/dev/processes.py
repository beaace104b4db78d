"""Processes that this one starts, and that must not outlive it."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

_STOP_S = 20.0
_PR_SET_PDEATHSIG = 1


def free_port(other_than: int = 0) -> int:
    """A TCP port that is free on loopback now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port != other_than:
            return port


def stop(process: subprocess.Popen[bytes]) -> None:
    """Let a process finish and end; one that does not is killed."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_with_parent() -> Callable[[], None] | None:
    """Have Linux end a child when this process is killed and cannot do so itself."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)  # loaded here: between fork and exec only the call is safe
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) and None
