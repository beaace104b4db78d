"""Alerts over links that lose: who has it, after how long, and at what price on the wire."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any
from uuid import UUID

from mercury.bench import processes
from mercury.bench.processes import Say
from mercury.bus import open_bus
from mercury.client import Client, ServiceEndpoint
from mercury.config.mediator import MediatorSettings
from mercury.mediator import BY_STRENGTH, Policy
from mercury.model.area import Area, Circle, Position
from mercury.model.delivery import DeliveryState
from mercury.model.message import DeliveryPolicy, Kind, Message, Priority
from mercury.service import now_us
from mercury.service.message_trail import LedgerReader
from mercury.session import SessionSettings

CENTER = Position(40.7608, -111.8910)
VALIDITY_S = 60.0
_BURST = 64
_LINGER_S = 1.0
_LOOK_S = 0.02  # seldom enough to leave the clients their time
_QUIET_S = 3.0  # fire-and-forget: what has not come by then does not come
# Sessions that outlive bad luck: it is delivery that is measured, not their coming and going.
_SESSION = SessionSettings(
    missed_reports=20, missed_heartbeats=10, heartbeat_interval_s=5.0, init_retry_max_s=1.0
)
_ENVIRONMENT = {
    "MERCURY_SESSION__REPORT_INTERVAL_S": "1",
    "MERCURY_SESSION__HEARTBEAT_INTERVAL_S": "5",
    "MERCURY_SESSION__MISSED_REPORTS": "20",
    # Each message asks for its policy itself.
    "MERCURY_MEDIATOR__RULES__ALERT__POLICY": "fire-and-forget",
}


def minimum_wire(loss: float, policy: Policy) -> float:
    """Packets a delivery costs at least, where each is lost with this probability, each way.

    A sender must retry until it gets an answer: both ways succeed with q = (1 − p)², so it sends
    1/q times, or as often as the policy allows; the recipient answers what arrives.
    """
    arrives = 1.0 - loss
    if not policy.acknowledge:
        return 1.0 / arrives  # sends, by deliveries
    answered = arrives * arrives
    if policy.max_tries is None:
        sends, delivered = 1.0 / answered, 1.0
    else:
        tries = policy.max_tries + 1
        sends = (1.0 - (1.0 - answered) ** tries) / answered
        delivered = 1.0 - loss**tries
    return sends * (1.0 + arrives) / delivered


def run(
    losses: list[float], clients: int, policies: list[DeliveryPolicy], say: Say, seed: int
) -> list[dict[str, Any]]:
    """Measure every policy at every loss."""
    rows = []
    for loss in losses:
        with processes.temporary_bus() as bus, processes.adapter(bus, _ENVIRONMENT) as (port, _):
            say(f"loss {loss:.0%}: opening {clients:,} sessions")
            world = _Clients(port, clients, loss, seed)
            rows += asyncio.run(world.run(bus, policies, say))
    return rows


class _Clients:
    """Real clients in one process, each behind its own bad link."""

    def __init__(self, port: int, count: int, loss: float, seed: int) -> None:
        self._heard: dict[UUID, Counter[str]] = {}
        self._times: dict[UUID, list[float]] = {}
        self._loss = loss
        mediator = MediatorSettings()
        self.clients = []
        for number in range(count):
            client = Client(
                f"udp://127.0.0.1:{port}",
                identity=f"car-{number}",
                position=CENTER,
                settings=_SESSION,
                mediator=mediator,
                seed=seed * 1_000_003 + number,
                link=f"loss={loss}",
            )
            client.on(Kind.ALERT)(self._listener(client.identity))
            self.clients.append(client)

    def _listener(self, name: str) -> Callable[[Message], None]:
        def hear(message: Message) -> None:
            self._heard.setdefault(message.id, Counter())[name] += 1
            self._times.setdefault(message.id, []).append(time.monotonic())

        return hear

    async def run(self, bus: str, policies: list[DeliveryPolicy], say: Say) -> list[dict[str, Any]]:
        rows = []
        try:
            await self._connect()
            for policy in policies:
                say(f"loss {self._loss:.0%}: {BY_STRENGTH[policy].name}")
                rows.append(await self._measure(bus, policy))
        finally:
            for client in self.clients:
                await client.close()
        return rows

    async def _connect(self) -> None:
        for first in range(0, len(self.clients), _BURST):
            for client in self.clients[first : first + _BURST]:
                await client.open()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(120.0):
            for client in self.clients:
                await client.connected()
        await asyncio.sleep(_LINGER_S)

    async def _measure(self, bus_uri: str, policy: DeliveryPolicy) -> dict[str, Any]:
        """Send one alert to all and wait until all deliveries are settled."""
        receipts_before = self._receipts_sent()
        with closing(open_bus(bus_uri)) as bus, closing(LedgerReader(bus, now_us())) as receipts:
            async with ServiceEndpoint(bus_uri, "bench") as office:
                begun = time.monotonic()
                alert = await office.alert(
                    Area(Circle(CENTER, 1000.0)),
                    kind="flood",
                    text="x" * 100,
                    priority=Priority.EMERGENCY,
                    validity_s=VALIDITY_S,
                    policy=policy,
                )
            deadline = begun + (VALIDITY_S if policy else _QUIET_S)
            while time.monotonic() < deadline:
                await asyncio.sleep(_LOOK_S)
                entry = receipts.catch_up().get(alert.id)
                if entry is not None and policy and not entry.states()[DeliveryState.WAITING]:
                    break
            await asyncio.sleep(0.2)
            entry = receipts.catch_up().get(alert.id)
        rows = [] if entry is None else list(entry.rows.values())
        heard = self._heard.get(alert.id, Counter())
        times = sorted(at - begun for at in self._times.get(alert.id, []))
        # Receipts piggybacked on reports cost no packet of their own.
        copies = sum(row.tries for row in rows) if policy else len(rows)
        packets = copies + self._receipts_sent() - receipts_before
        delivered = len(heard)
        minimum = minimum_wire(self._loss, BY_STRENGTH[policy])
        return {
            "policy": BY_STRENGTH[policy].name,
            "loss": self._loss,
            "clients": len(self.clients),
            "addressed": len(rows),
            "delivered_share": delivered / len(self.clients),
            "acknowledged": sum(row.state is DeliveryState.ACKNOWLEDGED for row in rows),
            "duplicates": sum(heard.values()) - delivered,
            "wire_per_delivery": round(packets / delivered, 4) if delivered else None,
            "minimum_wire_per_delivery": round(minimum, 4),
            "t50_s": _at_share(times, 0.5, len(self.clients)),
            "t99_s": _at_share(times, 0.99, len(self.clients)),
            "t100_s": _at_share(times, 1.0, len(self.clients)),
        }

    def _receipts_sent(self) -> int:
        return sum(client.mediator.receipt_packets for client in self.clients)


def _at_share(times: list[float], share: float, count: int) -> float | None:
    """When this share of all clients had it; None if fewer ever did."""
    index = max(round(share * count), 1) - 1
    return round(times[index], 3) if index < len(times) else None
