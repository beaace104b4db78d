"""Light clients for load: session cores on a few sockets, without an event loop."""

from __future__ import annotations

import random
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from mercury.model.area import Position
from mercury.model.errors import MercuryError, PacketError
from mercury.model.message import Telemetry
from mercury.net import resolve
from mercury.net.batch import SEND_BATCH, BatchReceiver, send_packets
from mercury.net.udp import bind_udp
from mercury.session import ClientEvent, ClientSession, SessionSettings, SessionState
from mercury.wire import HEADER_BYTES, parse

_CHUNK = 256


class LoadClients:
    """Many sessions over a few sockets; each packet finds its session by the token."""

    def __init__(
        self,
        adapter_port: int,
        count: int,
        sockets: int,
        positions: list[Position],
        *,
        host: str = "127.0.0.1",
        name: str = "load",
    ) -> None:
        family, self.adapter = resolve(host, adapter_port)
        local = "::" if family == socket.AF_INET6 else "0.0.0.0"
        if host == "127.0.0.1":
            local = host
        self.sockets = [bind_udp(local, 0) for _ in range(min(sockets, count))]
        settings = SessionSettings(report_interval_s=3600.0)
        self.sessions = [
            ClientSession(
                f"{name}-{number}",
                settings,
                random.Random(number),
                telemetry=Telemetry(positions[number % len(positions)], 0.0, 10.0),
                epoch_us=time.time_ns() // 1000,
            )
            for number in range(count)
        ]
        # Optional callback, with the number of a session and its event.
        self.heard: Callable[[int, ClientEvent], None] | None = None
        self.heard_at = 0.0  # when anything came last
        self._by_identity = {one.identity: number for number, one in enumerate(self.sessions)}
        self._by_token: dict[bytes, int] = {}
        self._by_incarnation: dict[int, int] = {}  # of sessions that are being opened
        self.receiver = BatchReceiver()
        self.poller = select.epoll()
        for sock in self.sockets:
            self.poller.register(sock.fileno(), select.EPOLLIN)

    def connect(self, timeout_s: float) -> None:
        """Open all sessions, retrying what gets lost."""
        deadline = time.monotonic() + timeout_s
        waiting = list(range(len(self.sessions)))
        while waiting:
            if time.monotonic() > deadline:
                raise MercuryError(f"{len(waiting)} of {len(self.sessions)} sessions did not open")
            for at in range(0, len(waiting), _CHUNK):
                some = waiting[at : at + _CHUNK]
                for number in some:
                    session, now = self.sessions[number], time.monotonic()
                    if session.state is SessionState.IDLE:
                        session.start(now)
                    else:
                        session.handle_timer(now)
                self.send_all(some)
                self.receive()
            for _ in range(20):
                self.receive(timeout_s=0.01)
            waiting = [
                number
                for number in waiting
                if self.sessions[number].state is not SessionState.ESTABLISHED
            ]
            if waiting:
                self.keep_alive()  # open sessions must not time out meanwhile

    def keep_alive(self) -> None:
        """Send the reports that keep the sessions alive."""
        now = time.monotonic()
        timers = ((number, one.next_timer()) for number, one in enumerate(self.sessions))
        due = [number for number, at in timers if at is not None and at <= now]
        for number in due:
            self.sessions[number].handle_timer(now)
        self.send_all(due)

    def report(self, number: int) -> bool:
        """Report a session's position, with the next send; False while it is opened again."""
        session, now = self.sessions[number], time.monotonic()
        if session.state is SessionState.ESTABLISHED:
            session.report(now)
            return True
        session.handle_timer(now)
        return False

    def close(self) -> None:
        """Close the sessions and the sockets."""
        for session in self.sessions:
            session.close(time.monotonic())
        self.send_all(range(len(self.sessions)))
        self.poller.close()
        for sock in self.sockets:
            sock.close()

    def send_all(self, numbers: Iterable[int]) -> tuple[int, int]:
        """Send the packets of these sessions; returns how many were sent, and how many not."""
        by_socket: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        for number in numbers:
            session = self.sessions[number]
            if session.state is SessionState.CONNECTING:
                self._by_incarnation[session.incarnation] = number
            packets = by_socket[self.sockets[number % len(self.sockets)].fileno()]
            packets += [(packet, self.adapter) for packet in session.outbox]
            session.outbox.clear()
        sent = total = 0
        for fd, packets in by_socket.items():
            total += len(packets)
            for begin in range(0, len(packets), SEND_BATCH):
                handled, unsendable = send_packets(fd, packets[begin : begin + SEND_BATCH])
                sent += handled - unsendable
        return sent, total - sent

    def receive(self, timeout_s: float = 0.0) -> None:
        """Receive the packets of all sessions."""
        for fd, _ in self.poller.poll(timeout_s):
            self.receive_from(fd)

    def receive_from(self, fd: int) -> None:
        """Receive the packets at one of the sockets, one batch."""
        challenged = []
        for data, _sender in self.receiver.receive(fd):
            number = self._by_token.get(data[8:24])
            if number is None and len(data) == HEADER_BYTES:
                # Nobody is named in a challenge: it repeats the incarnation.
                number = self._by_incarnation.get(int.from_bytes(data[24:]))
                if number is not None:
                    challenged.append(number)
            elif number is None:
                number = self._addressed(data)
            if number is None:
                continue
            session = self.sessions[number]
            self.heard_at = time.monotonic()
            session.receive(data, self.heard_at)
            if session.state is SessionState.ESTABLISHED:
                self._by_token[session.token] = number
                self._by_incarnation.pop(session.incarnation, None)
            if self.heard is None:
                session.events.clear()
                continue
            while session.events:
                self.heard(number, session.events.popleft())
        if challenged:
            self.send_all(challenged)

    def _addressed(self, data: bytes) -> int | None:
        """The session that a grant or refusal is for."""
        try:
            identity = parse(data[HEADER_BYTES:]).destination.client
        except PacketError:
            return None
        return self._by_identity.get(identity)
