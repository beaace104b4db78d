"""The link between a part and its supervisor: the part reports that it is up, and ends with it.

Each part inherits one end of a socket pair; the other belongs to the supervisor alone. However
that ends, the part reads the end of file and stops. On Linux the kernel sends a signal as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time

VARIABLE = "MERCURY_SUPERVISOR_FD"  # where a part finds its end, and its name after a colon
READY = b"READY=1\n"

_STOP_S = 15.0
_PR_SET_PDEATHSIG = 1

part = ""  # what the supervisor calls this process
_link: socket.socket | None = None


def hold() -> None:
    """Stop when the supervisor ends; does nothing without a supervisor."""
    global _link, part
    # Removed, as child processes have no end of their own.
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return
    number, _, part = number.partition(":")
    try:
        _link = socket.socket(fileno=int(number))
    except (OSError, ValueError):
        return  # a process between us and the supervisor closed it
    _link.set_inheritable(False)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    threading.Thread(target=_stop_at_end, args=(_link,), name="supervisor", daemon=True).start()


def say_ready() -> None:
    """Report to the supervisor that this part serves now."""
    if _link is not None:
        with contextlib.suppress(OSError):
            _link.send(READY)


def _stop_at_end(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while link.recv(64):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_S)
    os.killpg(0, signal.SIGKILL)  # it does not stop: kill it with its children
