"""The adapter is killed amid critical alerts: nobody is told twice, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from pathlib import Path
from uuid import UUID

from integration.processes import free_udp_port, starting
from live import HERE, NEAR, in_loop, until

import mercury
from mercury.bus import FromTime, catch_up, open_bus
from mercury.client import ServiceEndpoint
from mercury.mediator.ledger import Ledger
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.delivery import Deliveries, DeliveryState
from mercury.model.message import Address, Kind, Priority
from mercury.session import SessionSettings
from mercury.wire import decode

CLIENTS = 20
KILLS = 4
SESSION = SessionSettings(
    report_interval_s=0.3, heartbeat_interval_s=0.3, init_retry_s=0.1, init_retry_max_s=0.3
)
SETTINGS = """
[session]
report_interval_s = 0.3
heartbeat_interval_s = 0.3
[mediator.rules.alert]
policy = "critical"
resend_after_s = 0.2
"""


@functools.partial(in_loop, timeout_s=100.0)
async def test_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    port = free_udp_port()
    with starting(tmp_path) as start:
        adapter = start("adapter", "--port", str(port))
        await adapter.ready()
        clients = [
            mercury.connect(
                f"udp://127.0.0.1:{port}",
                identity=f"car-{number}",
                position=NEAR,
                settings=SESSION,
                connect_timeout_s=30.0,
            )
            for number in range(CLIENTS)
        ]
        heard: Counter[tuple[str, UUID]] = Counter()
        for client in clients:
            client.on(Kind.ALERT)(
                lambda message, name=client.identity: heard.update([(name, message.id)])
            )
            await client.__aenter__()
        sent: set[UUID] = set()
        stop = asyncio.Event()

        async def alerts() -> None:
            async with ServiceEndpoint(start.bus, "office") as office:
                while not stop.is_set():
                    to = Address.everyone() if rng.random() < 0.5 else Area(Circle(HERE, 1000.0))
                    alert = await office.alert(
                        to, kind="flood", priority=Priority.EMERGENCY, validity_s=60.0
                    )
                    sent.add(alert.id)
                    await asyncio.sleep(0.1)  # the rate of alerts

        telling = asyncio.create_task(alerts())
        for _ in range(KILLS):
            # Kill and restart at random moments: this time must pass.
            await asyncio.sleep(rng.uniform(0.3, 1.0))
            adapter.process.kill()
            await adapter.ended()
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            adapter = start("adapter", "--port", str(port))
            await adapter.ready()
        before = len(sent)
        await until(lambda: len(sent) >= before + 3)  # alerts of the last adapter, too
        stop.set()
        await telling
        wanted = {(client.identity, id) for client in clients for id in sent}
        await until(lambda: set(heard) >= wanted, timeout_s=30.0)
        await until(lambda: not _open(start.bus, sent), timeout_s=30.0)
        for client in clients:
            await client.close()
        assert set(heard) == wanted
        assert set(heard.values()) == {1}, f"told twice: {heard.most_common(3)}"
        assert len(sent) > 15
        assert sum(client.session.sessions_opened for client in clients) > CLIENTS


def _open(uri: str, sent: set[UUID]) -> list[str]:
    """Who is not in the ledger as having acknowledged, for each alert."""
    bus = open_bus(uri)
    ledger = Ledger()
    receipts = bus.subscribe((topics.DELIVERIES,), start=FromTime(0))
    for records in catch_up(receipts):
        for record in records:
            payload = decode(record.value).payload
            assert isinstance(payload, Deliveries)
            ledger.add(payload)
    receipts.close()
    bus.close()
    missing = []
    for id in sent:
        entry = ledger.get(id)
        rows = {} if entry is None else entry.rows
        done = [one for one in rows.values() if one.state is DeliveryState.ACKNOWLEDGED]
        missing += [f"{id}: {len(done)}"] * (len(done) != CLIENTS)
    return missing
