"""A device that installs no extra can run a client, an adapter and a broker."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

# Refuse every package that only an extra installs, then run a client against adapter and broker.
WITHOUT_EXTRAS = """
import asyncio, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.argv[1:]):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Refuse())

import mercury
import mercury.cli.check.doctor, mercury.cli.messages.send, mercury.cli.run.client
from mercury.adapter import Adapter
from mercury.broker import Broker
from mercury.bus import open_bus
from mercury.config import Settings

async def main():
    settings = Settings(adapter={"port": 0})
    bus = open_bus("memory:slim")
    adapter = Adapter(bus, settings.adapter, mercury.SessionSettings())
    broker = Broker(bus, settings.broker)
    await broker.start()
    await adapter.start()
    uri = f"udp://127.0.0.1:{adapter.port}"
    async with mercury.connect(uri, identity="slim", position=(1.0, 2.0)) as client:
        await client.echo(timeout_s=10.0)
    await adapter.stop()
    await broker.stop()

asyncio.run(main())
"""


def test_no_extra_is_needed_for_client_adapter_and_broker() -> None:
    needed = {entry.partition(">")[0].lower() for entry in PROJECT["dependencies"]}
    refused = {"numba", "llvmlite", "scipy", "pandas", "pyarrow", "pyspark", "matplotlib", "redis",
               "starlette", "uvicorn", "websockets", "confluent_kafka", "osmium"}  # fmt: skip
    assert not needed & refused
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *refused], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
