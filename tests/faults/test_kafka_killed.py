"""Kafka is killed under an adapter, a broker and their clients: nothing accepted is lost."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.alert_path import SETTINGS, AlertPath
from integration.processes import starting
from live import eventually, in_loop, until

from mercury.bus import Consumer, open_bus
from mercury.bus.kafka.bus import CLOSE_S
from mercury.bus.kafka.consumer import KafkaConsumer
from mercury.dev import KafkaBroker
from mercury.model.errors import BusAwayError, BusError, BusUnavailableError, JavaError

KILLS = 2
SOON_S = 5.0  # sooner than the session of a member that is forgotten ends


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
    mortal: KafkaBroker,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(level: int) -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == level]

    def said_at_work(sentences: int) -> bool:
        bus.append("t", b"v")
        member.commit()
        return len(said(logging.WARNING)) == sentences

    caplog.set_level(logging.INFO, "mercury")
    bus = open_bus(mortal.uri)
    alone, member = bus.subscribe(["t.*"]), bus.subscribe(["t"], group="g")
    caplog.clear()
    mortal.kill()
    eventually(lambda: said_at_work(1), 20.0)
    monkeypatch.setattr("mercury.bus.kafka.bus.FLUSH_S", 0.1)
    with pytest.raises(BusAwayError, match="they are kept"):
        bus.flush_now()
    monkeypatch.undo()
    # This time must pass: librdkafka and its consumers repeat their complaints within it.
    alone.poll()
    time.sleep(5.0)
    assert alone.poll() == []
    assert len(said(logging.WARNING)) == 1
    mortal.start()
    eventually(lambda: said_at_work(2), 20.0)
    bus.flush_now()
    found = eventually(member.poll, 20.0)  # its group is assembled anew
    assert {one.value for one in found} == {b"v"}
    bus.close()
    away, back = said(logging.WARNING)  # of one level: who saw the first sees the second
    assert f"{mortal.uri} cannot be reached" in away
    assert f"{mortal.uri} is back after" in back
    assert said(logging.ERROR) == []
    assert "rdkafka" not in capfd.readouterr().err


@pytest.mark.jvm
def test_a_cluster_that_comes_back_without_its_data(
    mortal: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Who reads is told in one sentence; who starts then makes the topics anew."""
    caplog.set_level(logging.INFO, "mercury")
    bus = open_bus(mortal.uri)
    alone, member = bus.subscribe(["t", "u"]), bus.subscribe(["t"], group="g")
    bus.append("t", b"v")
    bus.flush_now()
    mortal.kill()
    shutil.rmtree(mortal.data / "logs")
    mortal.start()

    def told(consumer: Consumer) -> str:
        try:
            consumer.poll()
        except BusError as error:
            return str(error)
        return ""

    lost = f"{mortal.uri} has lost topics that were read here "
    again = "; start this again to have them made anew, empty"
    assert eventually(lambda: told(alone), 30.0) == f"{lost}(t, u){again}"
    assert eventually(lambda: told(member), 30.0) == f"{lost}(t){again}"
    time.sleep(3.0)  # must pass: further complaints would come within it
    said = [one.getMessage() for one in caplog.records]
    assert len(said) <= 2, said  # that it was away and is back
    with contextlib.closing(open_bus(mortal.uri)) as anew:
        reader = anew.subscribe(["t"], group="g", start="earliest")
        anew.append("t", b"w")
        anew.flush_now()
        assert [one.value for one in eventually(reader.poll, 20.0)] == [b"w"]
    with contextlib.suppress(BusError):
        bus.close()


@pytest.mark.jvm
def test_all_who_end_while_it_is_away_share_one_limit(mortal: KafkaBroker) -> None:
    bus = open_bus(mortal.uri)
    bus.append("t", b"v")
    members = [bus.subscribe(["t"], group=group, start="earliest") for group in "gh"]
    for member in members:
        assert eventually(member.poll, 20.0)
    mortal.kill()
    bus.append("t", b"lost")
    begun = time.monotonic()
    for member in members:
        member.commit()
        member.close()
    with pytest.raises(BusUnavailableError, match="closed before it acknowledged 1 records"):
        bus.close()
    assert time.monotonic() - begun < CLOSE_S + 5.0  # not as often as somebody waits


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


@functools.partial(in_loop, timeout_s=120.0)
@pytest.mark.jvm
async def test_killed_again_and_again_all_read_on_as_soon_as_it_is_back(
    mortal: KafkaBroker,
) -> None:
    bus = await asyncio.to_thread(open_bus, mortal.uri)
    groups = (None, "g", "g", "h")  # "g" has two members
    readers = [
        await asyncio.to_thread(bus.subscribe, ["t", "u"], group=group, start="earliest")
        for group in groups
    ]
    seen: dict[str | None, set[int]] = {group: set() for group in groups}
    sent: list[int] = []

    async def read(group: str | None, consumer: Consumer) -> None:
        while True:
            seen[group].update(int(record.value) for record in await consumer.read())
            consumer.commit()

    async def write() -> None:
        for number in itertools.count():
            bus.append("tu"[number % 2], b"%d" % number, b"key-%d" % (number % 7))
            sent.append(number)
            await asyncio.sleep(0.002)

    def has_lost_its_session(consumer: Consumer) -> bool:
        return isinstance(consumer, KafkaConsumer) and not consumer.fetcher.has_joined

    works = [asyncio.create_task(read(*one)) for one in zip(groups, readers, strict=True)]
    writer = asyncio.create_task(write())
    await until(lambda: all(seen.values()))
    for long in (False, True, False):
        mortal.kill()
        if long:
            await until(lambda: all(map(has_lost_its_session, readers[1:])), 20.0)
        await asyncio.to_thread(mortal.start)
        mark = len(sent)
        await until(lambda mark=mark: all(max(one) >= mark for one in seen.values()), SOON_S)
    writer.cancel()
    await bus.flush()
    await until(lambda: all(one == set(sent) for one in seen.values()), 20.0)
    for work in works:
        work.cancel()
    await asyncio.gather(writer, *works, return_exceptions=True)
    await asyncio.to_thread(bus.close)
