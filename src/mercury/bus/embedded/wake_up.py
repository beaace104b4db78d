"""Wakes sleeping readers in other processes: a datagram that names the topic appended to.

A wake-up only says where to look; losing one costs at most a safety check. Few and small records
travel with it, so that a reader who is up to date need not look at all. A datagram is believed
because it opens with the listener's id, which only who may read the bus file knows.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mercury.bus.grouping import RegisteredConsumer

_ABSTRACT = sys.platform == "linux"
_KEY_BYTES = 16
_HEADER = struct.Struct(f"<{_KEY_BYTES}sQI")  # key, version, topic; then the frame
_FRAME_BYTES = 60_000


class WakeUp(NamedTuple):
    """What was appended: the frame itself, or without one only where to look."""

    version: int  # of the registry the writer saw
    topic_id: int = 0  # no topic has this one: look at topics and members again
    frame: bytes = b""


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


class WakeUpSocket:
    """The consumer's end."""

    def __init__(self, listener_id: str) -> None:
        name = f"mercury-{secrets.token_hex(8)}"
        self._key = bytes.fromhex(listener_id)
        self._buffer = memoryview(bytearray(_HEADER.size + _FRAME_BYTES))
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

    def drain(self) -> list[WakeUp] | None:
        """What came since the last call; None if there may have been more than was heard."""
        datagrams: list[WakeUp] = []
        count = 0
        buffer, receive = self._buffer, self._socket.recv_into
        while True:
            try:
                size = receive(buffer)
            except OSError:  # empty
                break
            count += 1
            if size < _HEADER.size or not hmac.compare_digest(buffer[:_KEY_BYTES], self._key):
                continue  # a stranger, or somebody who only tries whether we are there
            _, version, topic_id = _HEADER.unpack_from(buffer)
            datagrams.append(WakeUp(version, topic_id, bytes(buffer[_HEADER.size : size])))
        # A sender that finds the queue full drops its wake-up: the queue was full if we took out
        # as many as it holds.
        return None if count >= self._queue_length else datagrams

    def close(self) -> None:
        self._socket.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class Waker:
    """The producer's end."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._here = here()

    def wake_up(self, listener: RegisteredConsumer, datagram: WakeUp) -> bool:
        """Wake a listener, with the records themselves if few and small; False if it is gone."""
        version, topic_id, frame = datagram
        header = _HEADER.pack(bytes.fromhex(listener.id), version, topic_id)
        return self._send(listener, header + frame if len(frame) <= _FRAME_BYTES else header)

    def alive(self, listener: RegisteredConsumer) -> bool:
        """Whether a listener may still be there: an empty datagram says nothing to it."""
        return self._send(listener, b"")

    def _send(self, listener: RegisteredConsumer, data: bytes) -> bool:
        target = _socket_name(listener.address, self._here)
        if target is None:
            return True  # cannot be reached from here; it has its safety check
        try:
            self._socket.sendto(data, target)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            pass  # its queue is full: it is awake, and will look everywhere
        return True

    def close(self) -> None:
        self._socket.close()


@lru_cache(1024)
def _socket_name(address: str, place: str) -> str | None:
    """The name of a listener's socket, or None if it has none in this place."""
    there, at, name = address.partition("@")
    if at:
        name = f"\0{name}"
    else:
        there, slash, path = address.partition("/")
        name = slash + path
    return name if there == place else None
