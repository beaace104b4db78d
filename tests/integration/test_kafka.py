"""The bus on a real Kafka broker that is killed, and members that die."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live import HERE, NEAR, connect, eventually, first, in_loop, live, until

from mercury.bus import Bus, Consumer, Record, open_bus
from mercury.bus.kafka.consumer import KafkaConsumer
from mercury.bus.kafka.fetcher import Fetcher
from mercury.dev import KafkaBroker
from mercury.model.errors import BusError, BusFullError, BusUnavailableError

WAIT_S = 30.0  # no test waits this long unless it fails


@pytest.fixture
def uri(kafka_broker: KafkaBroker) -> str:
    """A namespace of the shared broker."""
    return f"{kafka_broker.uri}/{uuid.uuid4().hex}"


@pytest.fixture
def mortal(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker of one's own, to kill."""
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


def read_all(consumer: Consumer, count: int) -> list[Record]:
    """Poll until so many records came, or time is up."""
    records: list[Record] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.poll()
    return records


def append(bus: Bus, numbers: range) -> None:
    for number in numbers:
        bus.append("t", b"%d" % number, b"key-%d" % (number % 7))


def test_nothing_is_lost_or_doubled_when_the_broker_is_killed(mortal: KafkaBroker) -> None:
    bus = open_bus(mortal.uri)
    group = bus.subscribe(["t"], group="g", start="earliest")
    append(bus, range(500))
    bus.flush_now()
    assert len(read_all(group, 500)) == 500
    group.commit()
    bus.flush_now()

    # Killed in the midst of writing: what flush acknowledged stands, the rest follows.
    killer = threading.Timer(0.05, mortal.kill)
    killer.start()
    append(bus, range(500, 1000))
    with_broker = 0
    for number in range(1000, 3000):
        append(bus, range(number, number + 1))
        if number % 50 == 0 and mortal.running():
            with_broker += 1
            threading.Thread(target=_flush_quietly, args=(bus,), daemon=True).start()
        time.sleep(0.0005)  # the rate of appends, so that the kill falls among them
    killer.join()
    assert with_broker
    assert not mortal.running()
    mortal.start()
    bus.flush_now()

    everything = open_bus(mortal.uri)
    records = read_all(everything.subscribe(["t"], start="earliest"), 3000)
    by_key: dict[bytes, list[int]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(int(record.value))
    for key, values in by_key.items():
        assert values == sorted(set(values)), key  # in order, none twice
    assert sum(map(len, by_key.values())) == 3000

    # The group goes on where it had committed.
    assert sorted(int(one.value) for one in read_all(group, 2500)) == list(range(500, 3000))
    everything.close()
    bus.close()


def _flush_quietly(bus: Bus) -> None:
    try:
        bus.flush_now()
    except BusUnavailableError:
        pass


def test_while_the_broker_is_down_records_wait_up_to_a_limit(
    mortal: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = open_bus(mortal.uri)
    append(bus, range(10))
    bus.flush_now()
    mortal.kill()

    monkeypatch.setattr("mercury.bus.kafka.bus.FLUSH_S", 0.5)
    append(bus, range(10, 20))
    with pytest.raises(BusUnavailableError, match="not acknowledged 10 records within 0.5 s"):
        bus.flush_now()
    with pytest.raises(BusUnavailableError, match="they are kept"):
        asyncio.run(bus.flush())

    monkeypatch.setattr("mercury.bus.buffering.BUFFER_BYTES", 4096)
    accepted = 20
    try:
        while accepted < 1000:
            append(bus, range(accepted, accepted + 1))
            accepted += 1
    except BusFullError as error:
        assert "no more are accepted until it does" in str(error)
    assert 20 < accepted < 100

    monkeypatch.setattr("mercury.bus.kafka.bus.FLUSH_S", 30.0)
    mortal.start()
    bus.flush_now()
    records = read_all(bus.subscribe(["t"], start="earliest"), accepted)
    assert sorted(int(one.value) for one in records) == list(range(accepted))
    append(bus, range(accepted, accepted + 1))  # there is room again
    bus.close()


def test_closing_without_a_broker_says_what_was_lost(
    mortal: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercury.bus.kafka.bus.CLOSE_S", 0.5)
    bus = open_bus(mortal.uri)
    append(bus, range(1))
    bus.flush_now()
    mortal.kill()
    append(bus, range(1, 4))
    with pytest.raises(BusUnavailableError, match="closed before it acknowledged 3 records"):
        bus.close()
    bus.close()


def test_a_topic_made_elsewhere_before_is_not_new(uri: str) -> None:
    bus, other = open_bus(uri), open_bus(uri)
    for number in range(3):
        other.append("content.news", b"%d" % number)
    other.flush_now()
    consumers = [bus.subscribe(["content.*"]), bus.subscribe(["content.*"], group="g")]
    other.append("content.news", b"3")
    other.flush_now()
    assert [[one.value for one in consumer.poll()] for consumer in consumers] == [[b"3"]] * 2
    other.close()
    bus.close()


def test_a_second_member_does_not_move_where_the_group_began(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, other = open_bus(uri), open_bus(uri)
    bus.subscribe(["t"], group="g", start="latest")
    append(bus, range(3))
    bus.flush_now()
    # As if it had found the group new at the same moment as the first.
    with monkeypatch.context() as patched:
        patched.setattr(Fetcher, "_is_new", lambda self, places: True)
        other.subscribe(["t"], group="g", start="latest")
    other.close()
    bus.close()
    later = open_bus(uri)
    assert sorted(int(one.value) for one in later.subscribe(["t"], group="g").poll()) == [0, 1, 2]
    later.close()


_MEMBER = """
import sys
from mercury.bus import open_bus

bus = open_bus(sys.argv[1])
consumer = bus.subscribe(["t"], group="g", start="earliest")
print("joined", flush=True)
while True:
    for record in consumer.poll():
        print(int(record.value), flush=True)
"""


def test_a_killed_member_is_replaced(uri: str) -> None:
    bus = open_bus(uri)
    stays = bus.subscribe(["t"], group="g", start="earliest")
    process = subprocess.Popen(
        [sys.executable, "-c", _MEMBER, uri], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        append(bus, range(140))
        bus.flush_now()
        mine = [int(one.value) for one in stays.poll()]
        stays.commit()
        bus.flush_now()
        theirs = [int(process.stdout.readline()) for _ in range(140 - len(mine))]
        assert mine
        assert theirs
        assert sorted(mine + theirs) == list(range(140))
    finally:
        process.kill()  # without a word, and without having committed
        process.communicate()
    again = read_all(stays, len(theirs))
    assert sorted(int(one.value) for one in again) == sorted(theirs)
    bus.close()


def in_its_thread(fetcher: Fetcher, act: Callable[[], object]) -> None:
    """Let the thread of a consumer do something: only it may talk to the client."""
    done = threading.Event()
    follow = fetcher._follow

    def act_and_follow() -> None:
        fetcher._follow = follow  # type: ignore[method-assign]
        act()
        done.set()

    fetcher._follow = act_and_follow  # type: ignore[method-assign]
    assert done.wait(WAIT_S)


def test_a_reader_that_stands_still_goes_on_with_a_new_connection(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercury.bus.kafka.standstill.CHECK_INTERVAL_S", 0.2)
    monkeypatch.setattr("mercury.bus.kafka.standstill.RENEW_S", 1.0)
    monkeypatch.setattr("mercury.bus.kafka.fetcher.REPORT_S", 0.0)
    bus = open_bus(uri)
    member = bus.subscribe(["t"], group="g", start="earliest")
    alone = bus.subscribe(["t"])
    assert isinstance(member, KafkaConsumer)
    assert isinstance(alone, KafkaConsumer)
    append(bus, range(10))
    bus.flush_now()
    for reader in (member, alone):
        assert len(read_all(reader, 10)) == 10
    member.commit()
    bus.flush_now()
    eventually(lambda: not bus.trouble(), WAIT_S)
    # Their clients stop to read without a word, as after some outages.
    in_its_thread(member.fetcher, lambda: member.fetcher._client.unsubscribe())
    in_its_thread(alone.fetcher, lambda: alone.fetcher._client.unassign())
    append(bus, range(10, 20))
    bus.flush_now()
    said = eventually(bus.trouble, WAIT_S)
    assert "has stood still for" in said
    assert "answers" in said
    for reader in (member, alone):
        assert sorted(int(one.value) for one in read_all(reader, 10)) == list(range(10, 20))
    eventually(lambda: not bus.trouble(), WAIT_S)
    bus.close()


def test_a_reader_that_stands_still_for_long_ends(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part ends with it, and `mercury up` starts that again."""
    bus = open_bus(uri)
    member = bus.subscribe(["t"], group="g")
    assert isinstance(member, KafkaConsumer)
    eventually(lambda: member.fetcher.has_joined, WAIT_S)
    in_its_thread(member.fetcher, lambda: member.fetcher._client.unsubscribe())
    monkeypatch.setattr("mercury.bus.kafka.standstill.CHECK_INTERVAL_S", 0.2)
    monkeypatch.setattr("mercury.bus.kafka.fetcher.GIVE_UP_S", 0.5)
    monkeypatch.setattr("mercury.bus.kafka.fetcher.REPORT_S", 0.1)
    eventually(lambda: member.fetcher.failure, WAIT_S)
    with pytest.raises(BusError, match="reading g has stood still for .*; start this again"):
        member.poll()
    bus.close()


def test_members_come_and_go_under_load(uri: str) -> None:
    """Every record is handled, whoever joins and leaves meanwhile; most of them once."""

    async def scenario() -> None:
        writer = open_bus(uri)
        writer.subscribe(["t"]).close()
        handled: list[int] = []

        async def member(stop: asyncio.Event) -> None:
            bus = await asyncio.to_thread(open_bus, uri)
            consumer = await asyncio.to_thread(bus.subscribe, ["t"], group="g", start="earliest")
            while not stop.is_set():
                records = await consumer.read(timeout_s=0.05)
                handled.extend(int(one.value) for one in records)
                consumer.commit()
            await asyncio.to_thread(consumer.close)
            await asyncio.to_thread(bus.close)

        stops = [asyncio.Event() for _ in range(3)]
        tasks = []
        for number in range(3000):
            append(writer, range(number, number + 1))
            if number in (0, 600, 1200):
                tasks.append(asyncio.create_task(member(stops[len(tasks)])))
            elif number in (1800, 2400):
                stops[number // 600 - 3].set()
            await asyncio.sleep(0.001)  # the rate of appends, while members come and go
        await writer.flush()
        await until(lambda: len(set(handled)) == 3000, WAIT_S)
        for stop in stops:
            stop.set()
        await asyncio.gather(*tasks)
        writer.close()
        assert set(handled) == set(range(3000))
        assert len(handled) < 2 * 3000

    asyncio.run(scenario())


@in_loop
async def test_services_run_on_it(uri: str) -> None:
    async with live(uri) as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "near", NEAR) as near, connect(adapter, "here", HERE) as here:
            assert await here.echo() < 5.0
            await here.sense("emergency", text="Collision")
            alert = await first(near)
            assert alert.event is not None
            assert alert.event.text == "Collision"


def test_the_command_starts_a_broker_and_stops_it(kafka_broker: KafkaBroker) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mercury.cli.main", "dev", "kafka", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        bus = open_bus(ready["uri"])
        assert bus.topics() == []
        bus.close()
        assert Path(ready["data"]).is_dir()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert "is up" in errors
    assert not Path(ready["data"]).exists()  # it was temporary
    assert not Path(f"/proc/{ready['pid']}").exists()


def test_a_taken_port_is_one_sentence(kafka_broker: KafkaBroker) -> None:
    port = str(kafka_broker.port)
    done = subprocess.run(
        [sys.executable, "-m", "mercury.cli.main", "dev", "kafka", "--port", port],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"mercury: port {port} is taken; --port 0 takes a free one" in done.stderr
