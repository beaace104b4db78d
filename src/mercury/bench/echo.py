"""`echorate` (Mercury §7.3): round trips through client, adapter, bus, broker and back.

The load is open loop: messages leave on a schedule, whatever comes back. The generator's own
lateness is reported beside the round trips.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mercury.bench import processes
from mercury.bench.sessions import LoadClients
from mercury.model.area import Position
from mercury.model.message import Address, Attributes, Kind, Message, Priority
from mercury.net.batch import BatchReceiver
from mercury.net.udp import bind_udp
from mercury.session import SessionState
from mercury.wire import HEADER_BYTES, pack, to_envelope
from mercury.wire import mercury_pb2 as pb

CLIENTS = 32
GRACE_S = 2.0  # how long answers are waited for after the last message
_BURST = 64


@dataclass(slots=True)
class Run:
    """What one rate gave."""

    rate: float
    sent: int
    received: int
    duplicates: int
    round_trips_ms: NDArray[np.float64]
    late_p99_ms: float  # how late the generator itself was

    @property
    def lossless(self) -> bool:
        """Nothing lost, and the generator kept its schedule."""
        return self.received == self.sent and self.late_p99_ms < 50.0

    def row(self) -> dict[str, float]:
        """The documented keys."""
        found = self.round_trips_ms
        p25, p50, p75, p99 = np.percentile(found, [25, 50, 75, 99]) if len(found) else [np.nan] * 4
        return {
            "rate": self.rate,
            "sent": self.sent,
            "received": self.received,
            "duplicates": self.duplicates,
            "p25_ms": round(float(p25), 4),
            "p50_ms": round(float(p50), 4),
            "p75_ms": round(float(p75), 4),
            "p99_ms": round(float(p99), 4),
            "max_ms": round(float(found.max()), 4) if len(found) else float("nan"),
            "generator_late_p99_ms": round(self.late_p99_ms, 4),
        }


def open_loop(
    rate: float,
    count: int,
    send: Callable[[int], None],
    receive: Callable[[float], list[int]],
    idle: Callable[[], None] = lambda: None,
) -> Run:
    """Send message 0..count-1 on schedule; `receive` waits and returns the numbers that came."""
    sent_at = np.zeros(count)
    came_at = np.full(count, np.nan)
    late = np.zeros(count)
    duplicates = received = number = 0
    gc.collect()
    gc.disable()
    begun = time.perf_counter() + 0.01
    next_idle = begun
    try:
        end = begun + count / rate + GRACE_S
        while received < count:
            now = time.perf_counter()
            if now > end:
                break
            due = min(count, int((now - begun) * rate) + 1) if now >= begun else 0
            # A burst after a hiccup is cut, so that answers are read in between.
            burst_end = min(due, number + _BURST)
            while number < burst_end:
                now = time.perf_counter()
                sent_at[number] = now
                late[number] = now - (begun + number / rate)
                send(number)
                number += 1
            if number < due:
                wait = 0.0
            elif number < count:
                wait = max(0.0, begun + number / rate - time.perf_counter())
            else:
                wait = max(0.0, min(0.05, end - time.perf_counter()))
            for found in receive(min(wait, 0.05)):
                now = time.perf_counter()
                if np.isnan(came_at[found]):
                    came_at[found] = now
                    received += 1
                else:
                    duplicates += 1
            if now >= next_idle:
                idle()
                next_idle = now + 0.2
    finally:
        gc.enable()
    round_trips = (came_at - sent_at)[~np.isnan(came_at)] * 1000.0
    late_p99 = float(np.percentile(late[:number], 99)) * 1000.0 if number else 0.0
    return Run(rate, number, received, duplicates, round_trips, late_p99)


class EchoLoad:
    """Echo requests from many sessions."""

    def __init__(self, adapter_port: int, clients: int = CLIENTS) -> None:
        place = Position(40.7608, -111.8910)
        self._clients = LoadClients(adapter_port, clients, clients, [place])
        self._clients.connect(timeout_s=30.0)
        # One Envelope a client; only the id, which the reply brings back, changes.
        self._envelopes = [
            to_envelope(
                Message(
                    kind=Kind.REQUEST,
                    source=Address.client(session.identity),
                    destination=Address.broker(),
                    topic="echo",
                    priority=Priority.NORMAL,
                    payload=Attributes({"sent_us": time.time_ns() // 1000, "text": "x" * 64}),
                )
            )
            for session in self._clients.sessions
        ]
        self._run_number = 0

    def run(self, rate: float, seconds: float) -> Run:
        """Send at a rate for a time."""
        self._run_number += 1
        return open_loop(
            rate, max(1, round(rate * seconds)), self._send, self._receive, self._clients.tend
        )

    def close(self) -> None:
        self._clients.close()

    def _send(self, number: int) -> None:
        clients = self._clients
        chosen = number % len(clients.sessions)
        session = clients.sessions[chosen]
        if session.state is not SessionState.ESTABLISHED:
            return
        envelope = self._envelopes[chosen]
        envelope.id = self._run_number.to_bytes(8, "big") + number.to_bytes(8, "big")
        envelope.sent_us = time.time_ns() // 1000
        session.send_body(Kind.REQUEST, Priority.NORMAL, envelope.SerializeToString())
        clients.socket_of(chosen).sendto(session.outbox.pop(), ("127.0.0.1", self._port))

    @property
    def _port(self) -> int:
        return int.from_bytes(self._clients.adapter[2:4], "big")

    def _receive(self, wait_s: float) -> list[int]:
        clients = self._clients
        found = []
        # select's timeout is precise to the microsecond, epoll's to the millisecond.
        readable, _, _ = select.select([clients.poller], [], [], wait_s)
        if readable:
            for fd, _ in clients.poller.poll(0):
                for data, _sender in clients.receiver.receive(fd):
                    if data[3] != Kind.REPLY:
                        continue
                    correlation = pb.Envelope.FromString(data[HEADER_BYTES:]).correlation
                    if int.from_bytes(correlation[:8], "big") == self._run_number:
                        found.append(int.from_bytes(correlation[8:], "big"))
        return found


class _EchoProtocol(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(data, addr)


def _serve_floor(port: int) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(_EchoProtocol, local_addr=("127.0.0.1", port))
        await asyncio.Event().wait()

    asyncio.run(serve())


class FloorLoad:
    """The same load on a bare asyncio UDP echo: what the machine allows at best."""

    def __init__(self) -> None:
        self._port = processes.free_port(socket.SOCK_DGRAM)
        self._server = multiprocessing.get_context("spawn").Process(
            target=_serve_floor, args=(self._port,), daemon=True
        )
        self._server.start()
        self._socket = bind_udp("127.0.0.1", 0)
        self._socket.connect(("127.0.0.1", self._port))
        self._receiver = BatchReceiver()
        self._pad = pack(Kind.REQUEST, 4, bytes(16), 0, bytes(180))[8:]
        self._await_server()

    def run(self, rate: float, seconds: float) -> Run:
        """Send at a rate for a time."""
        return open_loop(rate, max(1, round(rate * seconds)), self._send, self._receive)

    def close(self) -> None:
        self._server.terminate()
        self._server.join()
        self._socket.close()

    def _send(self, number: int) -> None:
        with contextlib.suppress(ConnectionRefusedError):
            self._socket.send(number.to_bytes(8, "big") + self._pad)

    def _receive(self, wait_s: float) -> list[int]:
        readable, _, _ = select.select([self._socket], [], [], wait_s)
        if not readable:
            return []
        packets = self._receiver.receive(self._socket.fileno())
        return [int.from_bytes(data[:8], "big") for data, _ in packets]

    def _await_server(self) -> None:
        for _ in range(200):
            self._send(0)
            if self._receive(0.05):
                return
            time.sleep(0.02)
