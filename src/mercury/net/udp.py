"""UDP under asyncio, in batches: the shell around the session cores.

Network addresses are `udp://host:port`, and the raw sockaddr that the kernel hands out and takes.
The raw form is compared, stored in arrays and sent to without being translated for each packet.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from mercury.model.errors import ConfigurationError
from mercury.net import batch
from mercury.net.ports import bound

log = logging.getLogger(__name__)

Packets = list[tuple[bytes, bytes]]  # (packet, raw sockaddr of the other side)

_HAS_LENGTH_BYTE = sys.platform == "darwin" or "bsd" in sys.platform
_BUFFER_BYTES = 4 * 1024 * 1024
_FEW = 3  # packets up to which plain sendto is quicker than filling structures

_thread = threading.local()


def parse_udp_uri(uri: str) -> tuple[str, int]:
    with suppress(ValueError):
        parts = urlsplit(uri)
        if parts.scheme == "udp" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise ConfigurationError(f"{uri!r} is no adapter address, expected udp://HOST:PORT")


def resolve(
    host: str, port: int, wanted: int = socket.AF_UNSPEC
) -> tuple[socket.AddressFamily, bytes]:
    """Return the family and raw sockaddr of a host's first UDP address, of a family if wanted."""
    try:
        found = socket.getaddrinfo(host, port, wanted, socket.SOCK_DGRAM)
    except OSError as error:
        raise ConfigurationError(f"cannot find the address of host {host!r}: {error}") from None
    family, _, _, _, address = found[0]
    return family, to_sockaddr(str(address[0]), int(address[1]))


def to_sockaddr(host: str, port: int) -> bytes:
    """Return the raw sockaddr of a numeric IPv4 or IPv6 address."""
    if ":" in host:
        numeric, _, zone = host.partition("%")
        scope = socket.if_nametoindex(zone) if zone and not zone.isdigit() else int(zone or 0)
        return (
            _family(socket.AF_INET6, 28)
            + struct.pack(">HI16s", port, 0, socket.inet_pton(socket.AF_INET6, numeric))
            + struct.pack("=I", scope)
        )
    return _family(socket.AF_INET, 16) + struct.pack(">H4s8x", port, socket.inet_aton(host))


@functools.lru_cache(maxsize=4096)
def from_sockaddr(raw: bytes) -> tuple[str, int]:
    if len(raw) >= 28:
        port, _flow, address = struct.unpack_from(">HI16s", raw, 2)
        return socket.inet_ntop(socket.AF_INET6, address), port
    port, address = struct.unpack_from(">H4s", raw, 2)
    return socket.inet_ntoa(address), port


def _family(family: int, size: int) -> bytes:
    return bytes((size, family)) if _HAS_LENGTH_BYTE else struct.pack("=H", family)


class UdpEndpoint:
    """A socket that delivers received packets in batches and sends without blocking."""

    def __init__(self, sock: socket.socket, on_packets: Callable[[Packets], None]) -> None:
        self.socket = sock
        self.unsendable = 0  # packets the network layer refused
        self._fd = sock.fileno()
        self._on_packets = on_packets
        self._loop = asyncio.get_running_loop()
        self._backlog: Packets = []
        self._loop.add_reader(self._fd, self._readable)

    @property
    def address(self) -> tuple[str, int]:
        """The local host and port."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def try_send(self, packets: Packets) -> int:
        """Send what the socket takes now, in order; returns how many it took."""
        done = 0
        while done < len(packets):
            rest = packets[done:] if done else packets
            if batch.available and len(rest) > _FEW:
                handled, unsendable = batch.send_packets(self._fd, rest)
            else:
                handled, unsendable = self._send_singly(rest)
            self.unsendable += unsendable
            done += handled
            if handled < min(len(rest), batch.SEND_BATCH):
                break
        return done

    def try_send_shared(
        self,
        heads: NDArray[np.void],
        body: bytes,
        addresses: NDArray[np.uint8],
        address_lengths: NDArray[np.uint32],
    ) -> int:
        """Send one body under many heads, each to its address; returns how many were taken."""
        if batch.available:
            handled, unsendable = batch.send_shared(
                self._fd, heads, body, addresses, address_lengths
            )
        else:
            handled, unsendable = self._send_singly(
                [
                    (head.tobytes() + body, address[:length].tobytes())
                    for head, address, length in zip(heads, addresses, address_lengths, strict=True)
                ]
            )
        self.unsendable += unsendable
        return handled

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call once, as soon as the socket takes packets again."""

        def writable() -> None:
            self._loop.remove_writer(self._fd)
            callback()

        self._loop.add_writer(self._fd, writable)

    def send(self, packets: Packets) -> None:
        """Send in order; what the socket cannot take now goes out when it can."""
        if self._backlog:
            self._backlog.extend(packets)
            return
        handled = self.try_send(packets)
        if handled < len(packets):
            self._backlog = packets[handled:]
            self.when_writable(self._send_backlog)

    def stop_receiving(self) -> None:
        """Deliver no more packets; sending continues."""
        self._loop.remove_reader(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self.socket.close()
            self._fd = -1

    def _readable(self) -> None:
        packets = _receiver().receive(self._fd) if batch.available else self._receive_singly()
        if packets:
            self._on_packets(packets)

    def _send_singly(self, packets: Packets) -> tuple[int, int]:
        handled = unsendable = 0
        for packet, address in packets:
            try:
                self.socket.sendto(packet, from_sockaddr(address))
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    break
                unsendable += 1
            handled += 1
        return handled, unsendable

    def _receive_singly(self) -> Packets:
        packets = []
        for _ in range(batch.RECEIVE_BATCH):
            try:
                data, sender = self.socket.recvfrom(65_536)
            except OSError:  # nothing more, or an ICMP error of an earlier send
                break
            packets.append((data, to_sockaddr(*sender[:2])))
        return packets

    def _send_backlog(self) -> None:
        packets, self._backlog = self._backlog, []
        UdpEndpoint.send(self, packets)  # a lossy link has carried them already


def bind_udp(host: str, port: int, *, buffer_bytes: int = _BUFFER_BYTES) -> socket.socket:
    """Open a UDP socket; a taken port or an address that is not ours is a clear error."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        sock = socket.socket(family, socket.SOCK_DGRAM)
        grow_buffers(sock, buffer_bytes)
    except OSError as error:
        raise ConfigurationError(f"cannot use the address {host}:{port}: {error}") from None
    return bound("UDP", sock, host, port)


def grow_buffers(sock: socket.socket, wanted_bytes: int) -> int:
    """Ask for socket buffers and return what was granted for receiving: the kernel caps it."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, wanted_bytes)
    granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # Linux doubles it
    if granted < wanted_bytes:
        log.debug("receive buffer is %d of %d bytes asked for", granted, wanted_bytes)
    return granted


def _receiver() -> batch.BatchReceiver:
    receiver: batch.BatchReceiver | None = getattr(_thread, "receiver", None)
    if receiver is None:
        receiver = _thread.receiver = batch.BatchReceiver()
    return receiver
