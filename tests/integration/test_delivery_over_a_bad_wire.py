"""Critical alerts over a network that loses a third each way: all hear all of them, once.

Clients and adapter stand in network namespaces of their own where the machine allows it, else
behind the link model; the test says which.
"""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from integration.processes import free_udp_port, starting
from live import HERE, in_loop, until
from net.namespaces import NamespacesUnavailableError, joined_namespaces

import mercury
from mercury.bus import open_bus
from mercury.client import ServiceEndpoint
from mercury.mediator.ledger import LedgerSummary
from mercury.model.delivery import DeliveryState
from mercury.model.message import Address, Kind
from mercury.service.message_trail import LedgerReader
from mercury.session import SessionSettings

NAMES = [f"car-{number}" for number in range(4)]
ALERTS = 8
LOSS = 0.3
# Of the first packets, too, half is lost: they are repeated often.
PATIENT = SessionSettings(init_retry_s=0.2, init_retry_max_s=0.4)
SETTINGS = """
[session]
init_retry_s = 0.2
init_retry_max_s = 0.4
[mediator.rules.alert]
policy = "critical"
resend_after_s = 0.2
backoff = 1.0
"""


@asynccontextmanager
async def in_namespaces(folder: Path) -> AsyncIterator[tuple[str, object]]:
    """Clients and adapter as processes with nothing but the wire between them."""
    command = (sys.executable, "-m", "mercury.cli.main")
    with joined_namespaces(loss=LOSS, delay_s=0.005) as (left, right, wire):
        print(f"over network namespaces, wire: {wire}")
        adapter = right.popen(
            *command, "adapter", "--bus", "embedded:bus.db", "--host", right.address,
            cwd=folder, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert adapter.stderr is not None
        assert adapter.stderr.readline()
        clients = {}
        for name in NAMES:
            with (folder / f"{name}.json").open("wb") as output:
                clients[name] = left.popen(
                    *command, "client", "--position", f"{HERE.lat},{HERE.lon}", "--json",
                    "--identity", name, "--adapter", f"udp://{right.address}:7400",
                    cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
                    text=True,
                )  # fmt: skip
        for client in clients.values():
            assert client.stderr is not None
            assert "is connected" in await asyncio.to_thread(client.stderr.readline)

        def heard() -> Counter[tuple[str, str]]:
            found: Counter[tuple[str, str]] = Counter()
            for name in NAMES:
                for line in (folder / f"{name}.json").read_text().splitlines():
                    found[name, json.loads(line)["id"].replace("-", "")] += 1
            return found

        yield f"embedded:{folder / 'bus.db'}", heard


@asynccontextmanager
async def behind_links(folder: Path, reason: str) -> AsyncIterator[tuple[str, object]]:
    """The same on loopback, with the link model in between."""
    print(f"over the link model: {reason}")
    port = free_udp_port()
    with starting(folder) as start:
        await start("adapter", "--port", str(port)).ready()
        found: Counter[tuple[str, str]] = Counter()
        clients = []
        for number, name in enumerate(NAMES):
            client = mercury.Client(
                f"udp://127.0.0.1:{port}",
                identity=name,
                position=HERE,
                link=f"loss={LOSS}",
                seed=number,
                settings=PATIENT,
            )
            client.on(Kind.ALERT)(lambda message, name=name: found.update([(name, message.id.hex)]))
            clients.append(await client.__aenter__())
        yield start.bus, lambda: found
        for client in clients:
            await client.close()


async def tell_and_check(bus_uri: str, heard: object) -> None:
    assert callable(heard)
    sent = set()
    async with ServiceEndpoint(bus_uri, "office") as office:
        for _ in range(ALERTS):
            sent.add((await office.alert(Address.everyone(), kind="flood")).id.hex)
    bus = open_bus(bus_uri)
    reader = LedgerReader(bus, 0)

    def summary() -> LedgerSummary:
        return reader.catch_up().summary()

    wanted = len(NAMES) * ALERTS
    await until(lambda: summary().states == {DeliveryState.ACKNOWLEDGED: wanted}, timeout_s=55.0)
    assert summary().tries > 1.3 * wanted  # the wire was as bad as it should be
    assert heard() == {(name, id): 1 for name in NAMES for id in sent}
    reader.close()
    bus.close()


@functools.partial(in_loop, timeout_s=100.0)
async def test_all_hear_all_of_them_once(tmp_path: Path) -> None:
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    try:
        async with in_namespaces(tmp_path) as (bus, heard):
            await tell_and_check(bus, heard)
    except NamespacesUnavailableError as error:
        async with behind_links(tmp_path, str(error)) as (bus, heard):
            await tell_and_check(bus, heard)


@functools.partial(in_loop, timeout_s=100.0)
async def test_the_same_behind_the_link_model(tmp_path: Path) -> None:
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    async with behind_links(tmp_path, "for comparison") as (bus, heard):
        await tell_and_check(bus, heard)
