"""An adapter and clients on a hostile network, driven by a steppable clock."""

from __future__ import annotations

import heapq
import random

from session.invariants import check_adapter, check_client

from mercury.model.area import Position
from mercury.model.message import Kind, Telemetry
from mercury.session import AdapterSessions, ClientSession, SessionSettings
from mercury.session.adapter_side import SessionEvent
from mercury.testing import HostileNetwork, SteppableClock

ADAPTER = b"adapter"
TICK_S = 0.1


def address_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


class World:
    """Runs everything until a time, event by event."""

    def __init__(
        self,
        clients: int,
        network: HostileNetwork[bytes],
        settings: SessionSettings,
        *,
        adapter_settings: SessionSettings | None = None,
    ) -> None:
        self.network = network
        self.clock = SteppableClock()
        self.rng = random.Random(network.seed)
        self.adapter_settings = adapter_settings or settings
        self.restart_adapter()
        self.clients = [
            ClientSession(
                f"car-{number}",
                settings,
                random.Random(network.seed + number),
                telemetry=Telemetry(Position(40.0, number % 180 - 90), 90.0, 10.0),
            )
            for number in range(clients)
        ]
        self.addresses = [address_of(number) for number in range(clients)]
        self.by_address = {address: number for number, address in enumerate(self.addresses)}
        self.events: list[SessionEvent] = []
        self._next_tick = TICK_S
        self._timers: list[tuple[float, int]] = []

    def restart_adapter(self) -> None:
        self.adapter = AdapterSessions(
            "adapter-1", self.adapter_settings, lambda: self.rng.randbytes(16)
        )

    def rebind(self, number: int, address: bytes) -> None:
        """Give a client another network address."""
        self.by_address.pop(self.addresses[number])
        self.addresses[number] = address
        self.by_address[address] = number

    def start(self) -> None:
        for number, client in enumerate(self.clients):
            client.start(self.clock.now)
            self._after(number)

    def run(self, until: float) -> None:
        while True:
            times = [self.network.next_due(), self._next_tick]
            times.append(self._timers[0][0] if self._timers else None)
            now = min(time for time in times if time is not None)
            if now > until:
                self.clock.advance_to(until)
                return
            self._step(self.clock.advance_to(max(now, self.clock.now)))

    def _step(self, now: float) -> None:
        for packet in self.network.due(now):
            if packet.destination == ADAPTER:
                event = self.adapter.receive(packet.data, packet.source, now)
                if event is not None:
                    self.events.append(event)
            elif packet.destination in self.by_address:
                number = self.by_address[packet.destination]
                self.clients[number].receive(packet.data, now)
                self._after(number)
        while self._timers and self._timers[0][0] <= now:
            number = heapq.heappop(self._timers)[1]
            due = self.clients[number].next_timer()
            if due is not None and due <= now:
                self.clients[number].handle_timer(now)
                self._after(number)
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self.events.extend(self.adapter.handle_timer(now))
            due_slots = self.adapter.heartbeats_due(now)
            body = self.adapter.heartbeat_body(now) if len(due_slots) else b""
            for slot in due_slots:
                session = self.adapter.table.at(int(slot))
                assert session is not None
                packet = self.adapter.packet(session, Kind.HEARTBEAT, 1, body, now)
                self.network.send(packet, ADAPTER, session.address, now)
        for data, address in self.adapter.outbox:
            self.network.send(data, ADAPTER, address, now)
        self.adapter.outbox.clear()

    def _after(self, number: int) -> None:
        """Send what a client wants sent, and note when it wants to be woken."""
        client = self.clients[number]
        for packet in client.outbox:
            self.network.send(packet, self.addresses[number], ADAPTER, self.clock.now)
        client.outbox.clear()
        due = client.next_timer()
        if due is not None:
            heapq.heappush(self._timers, (due, number))

    def validate(self) -> None:
        check_adapter(self.adapter)
        for client in self.clients:
            check_client(client)
