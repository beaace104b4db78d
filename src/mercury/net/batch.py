"""Many UDP packets in one system call: `recvmmsg` and `sendmmsg` through ctypes.

Python's socket module moves one packet a call. A fan-out to 100,000 clients, or 60,000 reports a
second, need batches; the structures are laid out as NumPy arrays so that no Python code runs per
packet. Only Linux has these calls; `available` says so and `udp.py` does without elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

import numpy as np
from numpy.typing import NDArray

from mercury.model.message import MAX_PACKET_BYTES
from mercury.session.table import ADDRESS_BYTES

RECEIVE_BATCH = 128
SEND_BATCH = 1024  # the kernel's UIO_MAXIOV

_IOVEC = np.dtype([("base", "u8"), ("length", "u8")])
# struct mmsghdr of 64-bit Linux: a struct msghdr (56 bytes) and the length of the packet.
_MMSGHDR = np.dtype(
    {
        "names": ["name", "name_length", "iovec", "iovec_count", "flags", "length"],
        "formats": ["u8", "u4", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 48, 56],
        "itemsize": 64,
    }
)
_MSG_DONTWAIT = 0x40
_SLOT_BYTES = 65_536
assert _SLOT_BYTES > MAX_PACKET_BYTES

available = sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8
if available:
    _libc = ctypes.CDLL(None, use_errno=True)
    _recvmmsg = _libc.recvmmsg
    _recvmmsg.argtypes = (
        ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p,
    )  # fmt: skip
    _sendmmsg = _libc.sendmmsg
    _sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


class BatchReceiver:
    """Buffers to receive into; one serves all sockets of a thread."""

    def __init__(self, batch: int = RECEIVE_BATCH) -> None:
        self._buffer = np.empty((batch, _SLOT_BYTES), np.uint8)
        self._names = np.zeros((batch, ADDRESS_BYTES), np.uint8)
        self._iovecs = np.zeros(batch, _IOVEC)
        slots = np.arange(batch, dtype=np.uint64)
        self._iovecs["base"] = self._buffer.ctypes.data + slots * _SLOT_BYTES
        self._iovecs["length"] = _SLOT_BYTES
        self._headers = _headers(batch, self._names.ctypes.data, ADDRESS_BYTES, self._iovecs, 1)
        self._name_lengths = self._headers["name_length"]
        self._lengths = self._headers["length"]
        self._batch = batch
        self._headers_address = self._headers.ctypes.data
        self._data = memoryview(self._buffer.reshape(-1))  # type: ignore[arg-type]
        self._name_data = memoryview(self._names.reshape(-1))  # type: ignore[arg-type]

    def receive(self, fd: int) -> list[tuple[bytes, bytes]]:
        """Return what waits on a socket, as (packet, sender's sockaddr); does not block."""
        count = _recvmmsg(fd, self._headers_address, self._batch, _MSG_DONTWAIT, None)
        if count <= 0:
            return []
        data, names = self._data, self._name_data
        packets = []
        at = name_at = 0
        lengths = self._lengths[:count].tolist()
        name_lengths = self._name_lengths[:count].tolist()
        for length, name_length in zip(lengths, name_lengths, strict=True):
            packets.append(
                (bytes(data[at : at + length]), bytes(names[name_at : name_at + name_length]))
            )
            at += _SLOT_BYTES
            name_at += ADDRESS_BYTES
        self._name_lengths[:count] = ADDRESS_BYTES  # the kernel wrote the true length there
        return packets


def send_packets(fd: int, packets: list[tuple[bytes, bytes]]) -> tuple[int, int]:
    """Send (packet, sockaddr) pairs; returns (handled, unsendable).

    Fewer handled than given means that the socket's buffer is full.
    """
    packets = packets[:SEND_BATCH]
    count = len(packets)
    if not count:
        return 0, 0
    bodies, addresses = zip(*packets, strict=True)
    data = b"".join(bodies)
    names = b"".join([address.ljust(ADDRESS_BYTES, b"\0") for address in addresses])
    lengths = np.array(list(map(len, bodies)), np.uint64)
    name_lengths = np.array(list(map(len, addresses)), np.uint32)
    iovecs = np.empty(count, _IOVEC)
    iovecs["base"] = _address_of(data) + np.cumsum(lengths) - lengths
    iovecs["length"] = lengths
    headers = _headers(count, _address_of(names), name_lengths, iovecs, 1)
    return _send(fd, headers)


def send_shared(
    fd: int,
    heads: NDArray[np.void],
    body: bytes,
    addresses: NDArray[np.uint8],
    address_lengths: NDArray[np.uint32],
) -> tuple[int, int]:
    """Send one body under many heads, each to its address; returns (handled, unsendable)."""
    count = min(len(heads), SEND_BATCH)
    heads = np.ascontiguousarray(heads[:count])
    addresses = np.ascontiguousarray(addresses[:count])
    size = heads.dtype.itemsize
    iovecs = np.empty((count, 2), _IOVEC)
    iovecs["base"][:, 0] = heads.ctypes.data + np.arange(count, dtype=np.uint64) * size
    iovecs["length"][:, 0] = size
    iovecs["base"][:, 1] = _address_of(body)
    iovecs["length"][:, 1] = len(body)
    headers = _headers(count, addresses.ctypes.data, address_lengths[:count], iovecs, 2)
    return _send(fd, headers)


def _headers(
    count: int,
    names_address: int,
    name_lengths: NDArray[np.uint32] | int,
    iovecs: NDArray[np.void],
    iovecs_each: int,
) -> NDArray[np.void]:
    index = np.arange(count, dtype=np.uint64)
    headers = np.zeros(count, _MMSGHDR)
    headers["name"] = names_address + index * ADDRESS_BYTES
    headers["name_length"] = name_lengths
    headers["iovec"] = iovecs.ctypes.data + index * (iovecs_each * _IOVEC.itemsize)
    headers["iovec_count"] = iovecs_each
    return headers


def _send(fd: int, headers: NDArray[np.void]) -> tuple[int, int]:
    done = unsendable = 0
    start, count = headers.ctypes.data, len(headers)
    while done < count:
        sent = _sendmmsg(fd, start + done * _MMSGHDR.itemsize, count - done, _MSG_DONTWAIT)
        if sent > 0:
            done += sent
            continue
        code = ctypes.get_errno()
        if code in (errno.EAGAIN, errno.ENOBUFS):
            break
        if code == errno.EBADF:
            raise OSError(code, os.strerror(code))
        if code != errno.EINTR:  # this one address cannot be reached; the others can
            done += 1
            unsendable += 1
    return done, unsendable


def _address_of(data: bytes) -> int:
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return address
