"""UDP under asyncio, in batches: the shell around the session cores."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mercury.model.errors import ConfigurationError
from mercury.net import batch
from mercury.net.address import from_sockaddr, to_sockaddr
from mercury.net.ports import address_in_use

log = logging.getLogger(__name__)

Packets = list[tuple[bytes, bytes]]  # (packet, raw sockaddr of the other side)

_BUFFER_BYTES = 4 * 1024 * 1024
_FEW = 3  # packets up to which plain sendto is quicker than filling structures

_thread = threading.local()


class UdpEndpoint:
    """A socket that hands over what arrives in batches and sends without blocking."""

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
        """Hand over nothing more; sending goes on."""
        self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Close the socket."""
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
                self.socket.sendto(packet, _host_and_port(address))
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
        self.send(packets)


_host_and_port = functools.lru_cache(maxsize=4096)(from_sockaddr)


def bind_udp(host: str, port: int, *, buffer_bytes: int = _BUFFER_BYTES) -> socket.socket:
    """Open a UDP socket; a taken port or an address that is not ours is a clear error."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        sock = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        raise ConfigurationError(f"cannot use the address {host}:{port}: {error}") from None
    try:
        sock.setblocking(False)
        grow_buffers(sock, buffer_bytes)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise address_in_use("UDP", host, port) from None
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return sock


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
