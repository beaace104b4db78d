"""Brokers and adapters are killed while clients publish: each subscriber hears all, once."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

from integration.processes import Process, free_udp_port, starting
from live import HERE, in_loop, until

import mercury
from mercury.session import SessionSettings

PARTS = ("adapter", "broker")
KILLED = (["adapter"], ["broker"], ["adapter", "broker"], ["adapter"])
QUICK = SessionSettings(
    report_interval_s=0.3, heartbeat_interval_s=0.3, init_retry_s=0.1, init_retry_max_s=0.3
)
SETTINGS = """
[session]
report_interval_s = 0.3
heartbeat_interval_s = 0.3
"""


@functools.partial(in_loop, timeout_s=100.0)
async def test_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    port = free_udp_port()
    parts: dict[str, Process] = {}
    with starting(tmp_path) as starter:

        async def start(*names: str) -> None:
            for name in names:
                where = ("--port", str(port)) if name == "adapter" else ()
                parts[name] = starter(name, "--id", f"{name}-1", *where)
            await asyncio.gather(*(parts[name].ready() for name in names))

        async with AsyncExitStack() as held:
            await start(*PARTS)
            clients = [
                await held.enter_async_context(
                    mercury.connect(
                        f"udp://127.0.0.1:{port}",
                        identity=f"car-{number}",
                        position=HERE,
                        settings=QUICK,
                        connect_timeout_s=30.0,
                    )
                )
                for number in range(4)
            ]
            heard: Counter[tuple[str, UUID]] = Counter()
            for client in clients[1:]:
                await client.subscribe(
                    "fuel",
                    where="price >= 0",
                    handler=lambda message, name=client.identity: heard.update(
                        [(name, message.id)]
                    ),
                    timeout_s=30.0,
                )
            sent: list[UUID] = []

            async def publish() -> None:
                for price in itertools.count():
                    message = await clients[0].publish("fuel", {"price": price}, policy="critical")
                    sent.append(message.id)
                    await asyncio.sleep(0.02)  # the rate of content

            publishing = asyncio.create_task(publish())
            for killed in KILLED:
                # Kill at random moments: this time must pass.
                await asyncio.sleep(rng.uniform(0.3, 1.0))
                for name in killed:
                    parts[name].process.kill()
                for name in killed:
                    await parts[name].ended()
                await start(*killed)
            before = len(sent)
            await until(lambda: len(sent) >= before + 10)
            publishing.cancel()
            wanted = {(client.identity, id) for client in clients[1:] for id in sent}
            await until(lambda: heard.keys() >= wanted, timeout_s=30.0)
        assert heard.keys() == wanted
        assert set(heard.values()) == {1}, f"heard twice, seed {seed}: {heard.most_common(3)}"
        assert len(sent) > 50
