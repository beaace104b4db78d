"""Wakes sleeping readers in other processes: a datagram that lists the topics appended to.

A nudge only says where to look. Losing one costs at most a safety check, and a forged one a
look at a table.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

_ABSTRACT = sys.platform == "linux"
_TOPIC = struct.Struct("<I")
_NUDGE_BYTES = 4096
_TARGETS = 1024
REGISTRY_CHANGED = 0  # stands where a topic id would


def _queue_length() -> int:
    try:
        return int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    except (OSError, ValueError):
        return 10


def here() -> str:
    """Where an address is good: abstract names are private to a network namespace."""
    try:
        return f"{os.stat('/proc/self/ns/net').st_ino:x}"
    except OSError:
        return "-"


class Doorbell:
    """The consumer's end."""

    def __init__(self) -> None:
        name = f"mercury-{secrets.token_hex(8)}"
        self._file: Path | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            if _ABSTRACT:
                self._socket.bind(f"\0{name}")
                self.address = f"{here()}@{name}"
            else:
                self._file = Path(tempfile.gettempdir()) / name
                self._socket.bind(str(self._file))
                self.address = f"{here()}{self._file}"
        except OSError:
            self._socket.close()
            raise
        self._queue_length = _queue_length()

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> set[int] | None:
        """Topics nudged since the last call; None if there may have been more than was heard."""
        topics: set[int] = set()
        count = 0
        receive = self._socket.recv
        while True:
            try:
                nudge = receive(_NUDGE_BYTES)
            except OSError:  # empty
                break
            count += 1
            if len(nudge) == _TOPIC.size:
                topics.add(_TOPIC.unpack(nudge)[0])
            elif len(nudge) % _TOPIC.size == 0:
                topics.update(one for (one,) in _TOPIC.iter_unpack(nudge))
        # A sender that finds the queue full drops its nudge: the queue was full if we took out
        # as many as it holds.
        return None if count >= self._queue_length else topics

    def close(self) -> None:
        self._socket.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class Nudger:
    """The producer's end."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._here = here()
        self._targets: dict[str, str] = {}  # address -> socket name

    def nudge(self, address: str, topics: Iterable[int]) -> bool:
        """Wake one listener; False if it is certainly gone."""
        target = self._target(address)
        if target is None:
            return True  # cannot be reached from here; it has its safety check
        # A list too long for the reader's buffer arrives cut short, hence the limit.
        payload = b"".join(map(_TOPIC.pack, topics))
        if len(payload) > _NUDGE_BYTES:
            payload = _TOPIC.pack(REGISTRY_CHANGED)
        try:
            self._socket.sendto(payload, target)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            pass  # its queue is full: it is awake, and will look everywhere
        return True

    def alive(self, address: str) -> bool:
        """Whether a listener may still be there; does not wake it."""
        target = self._target(address)
        if target is None:
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(target)
            except (ConnectionRefusedError, FileNotFoundError):
                return False
            except OSError:
                pass
        return True

    def _target(self, address: str) -> str | None:
        """The socket's name, or None if it has none in this place."""
        target = self._targets.get(address)
        if target is None:
            place, at, name = address.partition("@")
            if at:
                target = f"\0{name}"
            else:
                place, slash, name = address.partition("/")
                target = slash + name
            if place != self._here:
                return None
            if len(self._targets) >= _TARGETS:
                self._targets.clear()
            self._targets[address] = target
        return target

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
