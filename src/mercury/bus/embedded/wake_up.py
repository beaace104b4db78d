"""Wakes sleeping readers in other processes: a datagram that lists the topics appended to.

A wake-up only says where to look. Losing one costs at most a safety check, and a forged one a
look at a table. Few and small records travel with it, as a batch, so that a reader who is up to
date need not look at all. A batch is believed because it opens with the listener's id, which only
who may read the bus file knows.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_ABSTRACT = sys.platform == "linux"
_TOPIC = struct.Struct("<I")
_WAKE_UP_BYTES = 4096
_DATAGRAM_MARK = b"\xff" * _TOPIC.size  # no topic has this id
_KEY_BYTES = 16
_DATAGRAM = struct.Struct(f"<{_KEY_BYTES}sQI")  # key, version, topic; then the frame
_DATAGRAM_BYTES = 60_000
_TARGETS = 1024
REGISTRY_CHANGED = 0  # stands where a topic id would


class Datagram(NamedTuple):
    """A frame of records, as it was appended."""

    version: int  # of the registry the writer saw
    topic_id: int
    frame: bytes


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
        self._buffer = memoryview(bytearray(_DATAGRAM_BYTES + _WAKE_UP_BYTES))
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

    def drain(self) -> tuple[set[int] | None, list[Datagram]]:
        """Topics woken since the last call, and what came with it.

        Instead of topics None, if there may have been more than was heard.
        """
        topics: set[int] = set()
        datagrams: list[Datagram] = []
        count = 0
        buffer, receive = self._buffer, self._socket.recv_into
        while True:
            try:
                size = receive(buffer)
            except OSError:  # empty
                break
            count += 1
            if buffer[: _TOPIC.size] == _DATAGRAM_MARK:
                datagram = self._open(buffer[_TOPIC.size : size])
                if datagram is not None:
                    datagrams.append(datagram)
            elif size % _TOPIC.size == 0:
                topics.update(one for (one,) in _TOPIC.iter_unpack(buffer[:size]))
        # A sender that finds the queue full drops its wake-up: the queue was full if we took out
        # as many as it holds.
        return (None if count >= self._queue_length else topics), datagrams

    def _open(self, data: memoryview) -> Datagram | None:
        if len(data) < _DATAGRAM.size or not hmac.compare_digest(data[:_KEY_BYTES], self._key):
            return None
        _, version, topic_id = _DATAGRAM.unpack_from(data)
        return Datagram(version, topic_id, bytes(data[_DATAGRAM.size :]))

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
        self._targets: dict[str, str] = {}  # address -> socket name

    def wake_up(self, address: str, topics: Iterable[int]) -> bool:
        """Wake one listener; False if it is certainly gone."""
        # A list too long for the reader's buffer arrives cut short, hence the limit.
        payload = b"".join(map(_TOPIC.pack, topics))
        if len(payload) > _WAKE_UP_BYTES:
            payload = _TOPIC.pack(REGISTRY_CHANGED)
        return self._send(address, payload)

    def hand(self, address: str, listener_id: str, datagram: Datagram) -> bool:
        """Wake one listener, with the records themselves if these are few and small."""
        if len(datagram.frame) > _DATAGRAM_BYTES:
            return self.wake_up(address, [datagram.topic_id])
        label = _DATAGRAM.pack(bytes.fromhex(listener_id), datagram.version, datagram.topic_id)
        return self._send(address, _DATAGRAM_MARK + label + datagram.frame)

    def _send(self, address: str, payload: bytes) -> bool:
        target = self._target(address)
        if target is None:
            return True  # cannot be reached from here; it has its safety check
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
