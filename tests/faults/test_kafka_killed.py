"""Kafka is killed under an adapter, a broker and their clients: nothing accepted is lost."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.alert_path import SETTINGS, AlertPath
from integration.processes import starting
from live import in_loop

from mercury.bus import open_bus
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


@pytest.mark.jvm
def test_an_outage_is_two_sentences(
    mortal: KafkaBroker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(level: int) -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == level]

    def wait_for(level: int) -> None:
        deadline = time.monotonic() + 20.0
        while not said(level) and time.monotonic() < deadline:
            bus.append("t", b"v")
            member.commit()
            time.sleep(0.05)

    caplog.set_level(logging.INFO, "mercury")
    bus = open_bus(mortal.uri)
    alone, member = bus.subscribe(["t.*"]), bus.subscribe(["t"], group="g")
    caplog.clear()
    mortal.kill()
    wait_for(logging.WARNING)
    # Longer than librdkafka and its consumers need to complain again and again.
    alone.poll()
    time.sleep(5.0)
    assert alone.poll() == []
    assert said(logging.INFO) == []
    mortal.start()
    wait_for(logging.INFO)
    bus.flush_now()
    deadline = time.monotonic() + 20.0
    while not (found := member.poll()):  # its group is assembled anew
        assert time.monotonic() < deadline
    assert {one.value for one in found} == {b"v"}
    bus.close()
    (away,) = said(logging.WARNING)
    (back,) = said(logging.INFO)
    assert f"{mortal.uri} cannot be reached" in away
    assert f"{mortal.uri} is back after" in back
    assert said(logging.ERROR) == []
    assert "rdkafka" not in capfd.readouterr().err


@functools.partial(in_loop, timeout_s=120.0)
@pytest.mark.jvm
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
