"""Kafka is killed under an adapter, a broker and their clients: nothing accepted is lost."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.alert_path import SETTINGS, AlertPath
from integration.processes import starting
from live import in_loop

from mercury.dev import KafkaBroker
from mercury.model.errors import JavaError

KILLS = 2


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker to kill, that goes on with its data."""
    broker = KafkaBroker(tmp_path / "kafka")
    try:
        broker.prepare()
    except JavaError as error:
        pytest.skip(f"no Kafka here: {error}")
    with broker:
        yield broker


@functools.partial(in_loop, timeout_s=120.0)
async def test_killed_at_random_moments(mortal: KafkaBroker, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    with starting(tmp_path) as starter:
        starter.bus = mortal.uri
        # The adapter lives, and keeps what it is sent until Kafka is back.
        path = AlertPath(starter, random.Random(seed), mortal_adapter=False)
        await path.start("adapter", "broker")
        async with path.load():
            for _ in range(KILLS):
                await path.a_while()
                mortal.kill()
                await path.a_while()
                await asyncio.to_thread(mortal.start)
            await path.a_while()
        path.check(seed)
        assert path.complaints < 200  # an outage fills no disk
        assert len(path.on_bus) > 20
