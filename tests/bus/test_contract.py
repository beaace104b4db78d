"""What every bus promises. A new bus joins by adding its kind to KINDS."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from live import eventually, iterate

from mercury.bus import Bus, Consumer, FromTime, Record, Retention, open_bus
from mercury.bus.api import Sync
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.bus.kafka.bus import KafkaBus
from mercury.bus.kafka.consumer import KafkaConsumer
from mercury.model.errors import BusError, BusUnavailableError

# No test waits this long unless it fails: Kafka waits 6 s for a member that seems to have died.
WAIT_S = 10.0


@dataclass(frozen=True)
class Kind:
    """In what buses may differ."""

    name: str
    resolution_us: int = 1  # of a record's time
    # Offsets and order: counted and kept over a whole topic, or in each partition only.
    order: Literal["topic", "partition"] = "topic"
    first_offset: int = 1
    # A sleeping reader is woken by the record: before any safety check, where there is one.
    woken_s: float = 0.4
    sync: Sync = "process"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kafka", resolution_us=1000, order="partition", first_offset=0, woken_s=2.0),
        Kind("embedded"),
        Kind("embedded-batch", sync="batch"),
    )
}
running = KINDS["embedded"]  # the kind that the current test is about


class Opener:
    """Opens connections to one bus, and closes them when the test ends."""

    def __init__(self, kind: Kind, uri: str) -> None:
        self.kind = kind
        self.uri = uri
        self._opened: list[Bus] = []

    def __call__(self, retention: Retention = Retention(), partitions: int = 16) -> Bus:  # noqa: B008
        bus = open_bus(self.uri, retention=retention, partitions=partitions, sync=self.kind.sync)
        self._opened.append(bus)
        return bus

    def close(self) -> None:
        for bus in self._opened:
            bus.close()


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found = KINDS[request.param]
    for mark in request.node.iter_markers("not_for"):
        if mark.args[0] == found.name:
            pytest.skip(mark.args[1])
    global running
    running = found
    return found


@pytest.fixture
def opener(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    if kind.name == "kafka":
        uri = f"{request.getfixturevalue('kafka_broker').uri}/{uuid.uuid4().hex}"
    else:
        uri = f"embedded:{tmp_path}/bus.db"
    opener = Opener(kind, uri)
    yield opener
    opener.close()


@pytest.fixture
def bus(opener: Opener) -> Bus:
    return opener()


def fill(bus: Bus, topic: str, count: int, first: int = 0, keys: int = 7) -> None:
    """Append numbered records under some keys, and flush."""
    for number in range(first, first + count):
        bus.append(topic, b"%d" % number, b"key-%d" % (number % keys))
    bus.flush_now()


def numbers(records: list[Record]) -> list[int]:
    """What the values say, in the order they came, as far as the bus promises an order."""
    found = [int(record.value) for record in records]
    if running.order == "topic":
        return found
    assert keep_order([record for record in records if record.key])
    return sorted(found)


def take(consumer: Consumer, count: int) -> list[Record]:
    """Poll until so many records came, or time is up."""
    records: list[Record] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.poll()
    return records


def take_all(consumers: list[Consumer], count: int) -> list[list[Record]]:
    """Poll several consumers in turn until they have so many records together."""
    taken: list[list[Record]] = [[] for _ in consumers]
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, taken)) < count and time.monotonic() < deadline:
        for consumer, records in zip(consumers, taken, strict=True):
            records += consumer.poll()
    return taken


def hand_over_within(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How long members may take to commit what they hold when partitions move."""
    monkeypatch.setattr("mercury.bus.embedded.assignment.HANDOVER_S", seconds)
    if running.name == "kafka":
        monkeypatch.setattr("mercury.bus.kafka.fetcher.HANDOVER_S", seconds)


def is_handing_over(consumer: Consumer) -> bool:
    """Whether a member of a group in Kafka was told that its partitions may go."""
    return isinstance(consumer, KafkaConsumer) and consumer._fetch_buffer.has_uncommitted


async def start_reading(consumer: Consumer) -> asyncio.Task[list[Record]]:
    """A read that waits for records by now."""
    reading = asyncio.create_task(consumer.read(timeout_s=WAIT_S))
    while not reading.done() and not consumer._waiting:  # type: ignore[attr-defined]
        await iterate()
    return reading


def keep_order(records: list[Record]) -> bool:
    """Whether each key's records came in the order they were appended."""
    by_key: dict[bytes, list[int]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(int(record.value))
    return all(values == sorted(values) for values in by_key.values())


# Records


def test_what_is_appended_is_read_back(bus: Bus) -> None:
    consumer = bus.subscribe(["requests"])
    before_us = time.time_ns() // 1000
    bus.append("requests", b"value", b"key", (("kind", b"echo"), ("place", b"\x00\xff")))
    bus.flush_now()
    after_us = time.time_ns() // 1000
    (record,) = consumer.poll()
    assert (record.topic, record.key, record.value) == ("requests", b"key", b"value")
    assert record.headers == (("kind", b"echo"), ("place", b"\x00\xff"))
    assert before_us - running.resolution_us < record.timestamp_us <= after_us
    assert 0 <= record.partition < 16
    assert consumer.poll() == []


def test_offsets_and_times_grow(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])
    for first in range(0, 100, 10):
        fill(bus, "t", 10, first)
    records = take(consumer, 100)
    assert numbers(records) == list(range(100))
    for partition in {record.partition for record in records}:
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == sorted(set(offsets))
    stamps = [record.timestamp_us for record in records]
    assert stamps == sorted(stamps)


def test_a_key_always_has_the_same_partition(opener: Opener) -> None:
    one, other = opener(), opener()
    consumer = one.subscribe(["t"])
    fill(one, "t", 50)
    fill(other, "t", 50, 50)
    records = take(consumer, 100)
    assert len({(record.key, record.partition) for record in records}) == 7
    assert keep_order(records)


def test_records_without_a_key_are_spread(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])
    for _ in range(64):
        bus.append("t", b"")
    bus.flush_now()
    records = take(consumer, 64)
    assert {record.key for record in records} == {b""}
    assert len({record.partition for record in records}) == 16


def test_a_whole_packet_fits(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])
    values = [bytes([number]) * (64 * 1024) for number in range(8)]
    for value in values:
        bus.append("t", value, b"k")
    bus.flush_now()
    assert [record.value for record in take(consumer, 8)] == values


def test_bytearray_and_memoryview_are_copied(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])
    buffer = bytearray(b"before")
    bus.append("t", buffer, memoryview(b"key"))  # type: ignore[arg-type]
    buffer[:] = b"after!"
    bus.flush_now()
    (record,) = consumer.poll()
    assert (record.value, record.key) == (b"before", b"key")


def test_what_cannot_be_a_record_is_refused_at_once(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])
    with pytest.raises(TypeError):
        bus.append("t", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        bus.append("t", b"v", headers=(("name", "text"),))  # type: ignore[arg-type]
    with pytest.raises(BusError, match="topic name"):
        bus.append("no such*", b"v")
    with pytest.raises(BusError, match="list of topics"):
        bus.subscribe("t")
    fill(bus, "t", 1)
    assert numbers(consumer.poll()) == [0]


def test_topics_are_listed(bus: Bus) -> None:
    assert bus.topics() == []
    fill(bus, "alerts", 1)
    fill(bus, "reports", 1)
    assert sorted(bus.topics()) == ["alerts", "reports"]


# Flushing


def test_the_loop_flushes_by_itself(bus: Bus) -> None:
    async def scenario() -> list[Record]:
        consumer = bus.subscribe(["t"])
        bus.append("t", b"1")
        return await consumer.read(timeout_s=WAIT_S)

    assert numbers(asyncio.run(scenario())) == [1]


def test_flush_waits_until_others_can_read(opener: Opener) -> None:
    async def scenario() -> list[int]:
        bus, other = opener(), opener()
        consumer = other.subscribe(["t"])
        seen = []
        for number in range(20):
            bus.append("t", b"%d" % number)
            await bus.flush()
            seen += numbers(consumer.poll())
        await bus.flush()
        return seen

    assert asyncio.run(scenario()) == list(range(20))


def test_a_second_loop_flushes_what_the_first_left(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])

    async def append(number: int) -> None:
        bus.append("t", b"%d" % number)

    asyncio.run(append(1))
    asyncio.run(append(2))
    asyncio.run(bus.flush())
    assert numbers(consumer.poll()) == [1, 2]


def test_appending_much_without_a_loop_flushes_now_and_then(opener: Opener) -> None:
    bus, other = opener(), opener()
    consumer = other.subscribe(["t"])
    for number in range(20_000):
        bus.append("t", b"%d" % number)
    assert len(take(consumer, 10_000)) >= 10_000
    bus.close()
    assert other.subscribe(["t"], start="earliest").lag() == 20_000


def test_closing_flushes(opener: Opener) -> None:
    bus, other = opener(), opener()
    consumer = other.subscribe(["t"])
    bus.append("t", b"1")
    bus.close()
    bus.close()
    assert numbers(consumer.poll()) == [1]
    with pytest.raises(BusUnavailableError, match="closed"):
        bus.append("t", b"2")


# Where reading starts


def test_latest_begins_after_subscribe_returned(bus: Bus) -> None:
    fill(bus, "t", 5)
    bus.append("t", b"5")  # not yet flushed, yet before
    consumer = bus.subscribe(["t"], start="latest")
    fill(bus, "t", 5, 6)
    assert numbers(take(consumer, 5)) == [6, 7, 8, 9, 10]


def test_earliest_begins_with_the_oldest(bus: Bus) -> None:
    fill(bus, "t", 5)
    assert numbers(bus.subscribe(["t"], start="earliest").poll()) == [0, 1, 2, 3, 4]


def test_replay_from_a_time(bus: Bus) -> None:
    for first in range(0, 60, 10):
        fill(bus, "t", 10, first)
    records = bus.subscribe(["t"], start="earliest").poll()
    for wanted in (records[0], records[25], records[-1]):
        replayed = bus.subscribe(["t"], start=FromTime(wanted.timestamp_us)).poll()
        assert replayed == [one for one in records if one.timestamp_us >= wanted.timestamp_us]
    assert bus.subscribe(["t"], start=FromTime(records[-1].timestamp_us + 1)).poll() == []
    assert len(bus.subscribe(["t"], start=FromTime(0)).poll()) == 60


# Several topics


def test_topics_are_served_in_the_order_given(bus: Bus) -> None:
    consumer = bus.subscribe(["alerts.high", "alerts.low", "content.*"])
    for topic in ("content.news", "alerts.low", "alerts.high"):
        fill(bus, topic, 10)
    first = consumer.poll(15)
    assert [record.topic for record in first] == ["alerts.high"] * 10 + ["alerts.low"] * 5
    fill(bus, "alerts.high", 1, 10)
    second = consumer.poll(100)
    assert [record.topic for record in second] == (
        ["alerts.high"] + ["alerts.low"] * 5 + ["content.news"] * 10
    )


@pytest.mark.parametrize("group", [None, "readers"])
def test_a_pattern_follows_topics_created_later(opener: Opener, group: str | None) -> None:
    async def scenario() -> None:
        bus, other = opener(), opener()
        fill(bus, "content.old", 3)
        fill(bus, "contents", 3)
        consumer = bus.subscribe(["content.*", "plain"], group=group, start="latest")
        for topic in ("content.a", "content.a.b", "plain"):
            fill(other, topic, 3)
            records = await consumer.read(timeout_s=WAIT_S)
            while running.order == "partition" and 0 < len(records) < 3:
                records += await consumer.read(timeout_s=WAIT_S)  # partitions come one by one
            assert {one.topic for one in records} == {topic}
            assert numbers(records) == [0, 1, 2]

    asyncio.run(scenario())


def test_a_topic_younger_than_its_group_is_read_whole(opener: Opener) -> None:
    bus = opener()
    bus.subscribe(["content.*"], group="g", start="latest").close()
    fill(bus, "content.new", 3)
    consumer = bus.subscribe(["content.*"], group="g", start="latest")
    assert numbers(consumer.poll()) == [0, 1, 2]


# Groups


def test_a_group_divides_the_work_without_doubles(opener: Opener) -> None:
    buses = [opener() for _ in range(3)]
    members = [bus.subscribe(["t"], group="g", start="earliest") for bus in buses]
    for member in members:
        member.poll()
    fill(buses[0], "t", 700)
    taken = take_all(members, 700)
    assert sorted(number for records in taken for number in numbers(records)) == list(range(700))
    assert all(keep_order(records) for records in taken)
    assert len([records for records in taken if records]) > 1
    assert all(member.poll() == [] for member in members)


def test_groups_do_not_disturb_each_other(bus: Bus) -> None:
    consumers = [bus.subscribe(["t"], group=group) for group in ("a", "b")]
    consumers.append(bus.subscribe(["t"]))
    fill(bus, "t", 20)
    assert [numbers(one.poll()) for one in consumers] == [list(range(20))] * 3


def test_members_may_follow_different_topics(bus: Bus) -> None:
    one = bus.subscribe(["a", "both"], group="g")
    other = bus.subscribe(["b", "both"], group="g")
    for topic in ("a", "b", "both"):
        fill(bus, topic, 70)
    taken = take_all([one, other], 210)
    assert len([record for record in taken[0] if record.topic == "a"]) == 70
    assert len([record for record in taken[1] if record.topic == "b"]) == 70
    both = [record.value for records in taken for record in records if record.topic == "both"]
    assert sorted(map(int, both)) == list(range(70))


def test_joining_and_leaving_moves_partitions(opener: Opener) -> None:
    bus = opener()
    first = bus.subscribe(["t"], group="g", start="earliest")
    fill(bus, "t", 70)
    assert len(take(first, 70)) == 70
    first.commit()
    bus.flush_now()

    second = opener().subscribe(["t"], group="g")
    fill(bus, "t", 70, 70)
    taken = take_all([first, second], 70)
    assert sorted(numbers(taken[0] + taken[1])) == list(range(70, 140))
    assert taken[0]
    assert taken[1]
    first.commit()
    second.commit()
    bus.flush_now()

    second.close()
    fill(bus, "t", 70, 140)
    # The second's commits went with its close.
    assert numbers(take(first, 70)) == list(range(140, 210))


def test_what_a_leaving_member_did_not_commit_goes_to_the_others(opener: Opener) -> None:
    bus = opener()
    stays = bus.subscribe(["t"], group="g", start="earliest")
    leaves = opener().subscribe(["t"], group="g")
    stays.poll()
    fill(bus, "t", 70)
    taken = take_all([stays, leaves], 70)
    stays.commit()
    bus.flush_now()
    leaves.close()
    again = take(stays, len(taken[1]))
    assert sorted(numbers(again)) == sorted(numbers(taken[1]))
    assert keep_order(again)


@pytest.mark.parametrize("notices", [False, True])
def test_a_member_cannot_commit_what_it_lost(
    opener: Opener, notices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over_within(monkeypatch, 0.1)
    bus, other = opener(), opener()
    slow = bus.subscribe(["t"], group="g", start="earliest")
    fill(bus, "t", 70)
    taken = take(slow, 70)
    assert len(taken) == 70  # and does not commit yet
    heir = other.subscribe(["t"], group="g")
    first = take(heir, 1)
    parts = {part for _, part in heir.assignments()}
    inherited = [record for record in taken if record.partition in parts]
    assert first  # handed to the heir because nobody committed it in time
    first += take(heir, len(inherited) - len(first))
    assert sorted(numbers(first)) == sorted(numbers(inherited))
    if notices:
        assert slow.lag() == 0
    slow.commit()  # too late for the heir's partitions, in time for its own
    bus.flush_now()
    slow.close()
    heir.close()
    again = take(other.subscribe(["t"], group="g"), len(inherited))
    assert sorted(numbers(again)) == sorted(numbers(inherited))


def test_a_member_that_stays_does_not_read_its_partitions_again(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over_within(monkeypatch, 0.1)
    bus = opener()
    first = bus.subscribe(["t"], group="g", start="earliest")
    fill(bus, "t", 70)
    held = take(first, 70)  # and has not committed
    second = opener().subscribe(["t"], group="g")
    again = take(second, 1)
    assert first.poll() == []
    assert {record.partition for record in again} < {record.partition for record in held}
    second.close()  # without a commit: its partitions come back, the rest does not
    back = take(first, len(again))
    assert back == again


def test_a_partition_that_was_somebody_elses_has_another_epoch(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over_within(monkeypatch, 0.1)
    bus = opener(partitions=4)
    first = bus.subscribe(["t"], group="g", start="earliest")
    fill(bus, "t", 70)
    held = take(first, 70)
    before = dict(first.assignments())
    assert {part for _, part in before} >= {record.partition for record in held}
    second = opener().subscribe(["t"], group="g")
    moved = {record.partition for record in take(second, 1)}
    assert moved <= {part for _, part in second.assignments()}
    fill(bus, "t", 70, 70)
    stayed = {record.partition for record in take(first, 1)}
    assert stayed
    between = dict(first.assignments())
    assert not moved & {part for _, part in between}
    assert all(between["t", part] == before["t", part] for part in stayed)
    second.close()
    back = take(first, len([one for one in held if one.partition in moved]))
    assert moved <= {record.partition for record in back}
    after = dict(first.assignments())
    assert all(after["t", part] == before["t", part] for part in stayed)
    assert all(after["t", part] != before["t", part] for part in moved)


def test_what_a_member_holds_is_committed_before_its_partitions_move(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over_within(monkeypatch, 4 * WAIT_S)
    bus, other = opener(), opener()
    first = bus.subscribe(["t"], group="g", start="earliest")
    fill(bus, "t", 70)
    assert len(take(first, 70)) == 70
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(other.subscribe, ["t"], group="g")
        eventually(lambda: joining.done() or is_handing_over(first), WAIT_S)
        first.commit()  # the work with what it holds took a while
        second = joining.result(4 * WAIT_S)
    fill(bus, "t", 70, 70)
    taken = take_all([first, second], 70)
    assert sorted(numbers(taken[0] + taken[1])) == list(range(70, 140))
    assert taken[0]
    assert taken[1]
    assert first.poll() == second.poll() == []


def test_unequal_positions_are_read_in_small_steps(opener: Opener) -> None:
    bus = opener()
    first = bus.subscribe(["t"], group="g", start="earliest")
    second = opener().subscribe(["t"], group="g")
    fill(bus, "t", 140)
    done = first.poll()
    first.commit()  # one half of the partitions is ahead of the other
    bus.flush_now()
    first.close()
    second.close()
    heir = bus.subscribe(["t"], group="g")
    left: list[Record] = []
    while records := heir.poll(3):
        left += records
        heir.commit()
        bus.flush_now()
    assert sorted(numbers(done + left)) == list(range(140))


@pytest.mark.parametrize("keys", [1, 7])
def test_reading_goes_on_at_the_committed_offset(opener: Opener, keys: int) -> None:
    if keys > 1 and running.order == "partition":
        pytest.skip("which records come first is not promised across partitions")
    keep, bus = opener(), opener()
    consumer = bus.subscribe(["t"], group="g", start="earliest")
    fill(bus, "t", 10, keys=keys)
    assert numbers(consumer.poll(4)) == [0, 1, 2, 3]
    consumer.commit()
    assert numbers(consumer.poll(3)) == [4, 5, 6]  # returned, never committed
    bus.close()
    again = keep.subscribe(["t"], group="g", start="latest")
    assert numbers(again.poll()) == [4, 5, 6, 7, 8, 9]


def test_a_commit_becomes_durable_with_the_records_before_it(opener: Opener) -> None:
    async def scenario() -> None:
        bus, other = opener(), opener()
        consumer = bus.subscribe(["requests"], group="g", start="earliest")
        replies = other.subscribe(["replies"])
        fill(bus, "requests", 3)
        for record in consumer.poll():
            bus.append("replies", record.value)
        consumer.commit()
        # Neither the replies nor the commit before the flush …
        assert replies.poll() == []
        await bus.flush()
        # … and both after it.
        assert numbers(replies.poll()) == [0, 1, 2]
        consumer.close()
        assert other.subscribe(["requests"], group="g", start="earliest").poll() == []

    asyncio.run(scenario())


def test_a_group_begun_at_latest_misses_nothing_after(opener: Opener) -> None:
    bus = opener()
    fill(bus, "t", 10)
    bus.subscribe(["t"], group="g", start="latest").close()  # never read, never committed
    fill(bus, "t", 10, 10)
    later = bus.subscribe(["t"], group="g", start="latest")
    assert numbers(later.poll()) == list(range(10, 20))


def test_lag_counts_what_waits(opener: Opener) -> None:
    bus = opener()
    alone = bus.subscribe(["t", "u"])
    members = [bus.subscribe(["t", "u"], group="g") for _ in range(2)]
    assert alone.lag() == 0
    fill(bus, "t", 70)
    fill(bus, "u", 30)
    assert alone.lag() == 100
    assert sum(member.lag() for member in members) == 100
    alone.poll(60)
    assert alone.lag() == 40
    alone.close()
    assert alone.lag() == 0


# Waiting


def test_a_sleeping_reader_is_woken(opener: Opener) -> None:
    async def scenario() -> float:
        bus, other = opener(), opener()
        consumer = bus.subscribe(["t"])
        reading = await start_reading(consumer)
        begun = time.monotonic()
        fill(other, "t", 1)
        assert numbers(await reading) == [0]
        return time.monotonic() - begun

    assert asyncio.run(scenario()) < opener.kind.woken_s


def test_a_reader_is_woken_from_another_thread(opener: Opener) -> None:
    async def scenario() -> None:
        consumer = opener().subscribe(["t"])
        other = opener()
        thread = threading.Thread(target=fill, args=(other, "t", 3))
        thread.start()
        seen: list[Record] = []
        while len(seen) < 3:
            records = await consumer.read(timeout_s=WAIT_S)
            assert records
            seen += records
        thread.join()

    asyncio.run(scenario())


def test_what_is_there_now_is_read_without_holding_the_loop(opener: Opener) -> None:
    async def scenario() -> None:
        other, bus = opener(), opener()
        consumer = bus.subscribe(["t"])
        assert await consumer.read_now() == []
        fill(other, "t", 20)  # seen at once, whoever appended it
        found = await consumer.read_now(15)
        assert len(found) == 15
        assert numbers(found + await consumer.read_now()) == list(range(20))
        assert await consumer.read_now() == []
        consumer.close()
        assert await consumer.read_now() == []

    asyncio.run(scenario())


def test_a_read_ends_when_its_time_is_up(bus: Bus) -> None:
    async def scenario() -> None:
        consumer = bus.subscribe(["t"])
        assert await consumer.read(timeout_s=0) == []
        begun = time.monotonic()
        assert await consumer.read(timeout_s=0.05) == []
        assert time.monotonic() - begun >= 0.045

    asyncio.run(scenario())


@pytest.mark.parametrize("close", ["consumer", "bus"])
def test_closing_wakes_a_waiting_read(bus: Bus, close: str) -> None:
    async def scenario() -> None:
        consumer = bus.subscribe(["t"], group="g")
        reading = await start_reading(consumer)
        assert not reading.done()
        (consumer if close == "consumer" else bus).close()
        assert await asyncio.wait_for(reading, WAIT_S) == []
        assert await consumer.read() == []
        assert consumer.poll() == []

    asyncio.run(scenario())


def test_a_cancelled_read_loses_nothing(bus: Bus) -> None:
    async def scenario() -> None:
        consumer = bus.subscribe(["t"])
        reading = await start_reading(consumer)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        bus.append("t", b"7")
        assert numbers(await consumer.read(timeout_s=WAIT_S)) == [7]

    asyncio.run(scenario())


def test_a_reader_that_is_always_behind_lets_the_loop_run(bus: Bus) -> None:
    async def scenario() -> None:
        consumer = bus.subscribe(["t"])
        answers = bus.subscribe(["answers"])
        fill(bus, "t", 100, keys=1)
        for number in range(50):
            assert numbers(await consumer.read(1, timeout_s=WAIT_S)) == [number]
            bus.append("answers", b"%d" % number)
        # Nothing but these reads gave the loop a chance to flush; taking does not let it run.
        assert len(take(answers, 49)) >= 49

    asyncio.run(scenario())


def test_a_consumer_moves_from_loop_to_loop(bus: Bus) -> None:
    consumer = bus.subscribe(["t"])
    for number in range(3):

        async def scenario(number: int = number) -> list[Record]:
            bus.append("t", b"%d" % number)
            return await consumer.read(timeout_s=WAIT_S)

        assert numbers(asyncio.run(scenario())) == [number]


# Retention


def drop_old(bus: Bus, now_us: int) -> int:
    """Let the retention do now what it does in the background; return how many records went."""
    if isinstance(bus, EmbeddedBus):
        return bus._upkeep.enforce(now_us)
    # Kafka drops whole segments, minutes later. This is its way to drop records at once.
    assert isinstance(bus, KafkaBus)
    cluster = bus._cluster
    spans = cluster.spans(cluster.partition_ids(cluster.matching(("t",))))
    ends = [cluster.partition(partition_id, end) for partition_id, (_, end) in spans.items()]
    for done in cluster._admin.delete_records(ends).values():
        done.result()
    return sum(end - low for low, end in spans.values())


@pytest.mark.not_for("kafka", "Kafka sees to age by itself, in whole segments")
def test_retention_by_age(opener: Opener) -> None:
    bus = opener(Retention(max_age_s=100.0, max_bytes=None))
    slow = bus.subscribe(["t"])
    fill(bus, "t", 1000)
    old = bus.subscribe(["t"], start="earliest").poll(1000)
    assert drop_old(bus, old[0].timestamp_us + 100_000_000) == 0
    fill(bus, "t", 10, 1000)
    late_us = old[-1].timestamp_us + 100_000_001
    assert drop_old(bus, late_us) == 1000
    assert drop_old(bus, late_us) == 0
    # Whoever was below the horizon goes on with the next record there is.
    assert numbers(slow.poll()) == list(range(1000, 1010))


def test_offsets_are_not_reused_when_everything_is_gone(opener: Opener) -> None:
    bus = opener(Retention(max_age_s=0.0, max_bytes=None))
    consumer = bus.subscribe(["t"], group="g", start="earliest")
    last: dict[int, int] = {}
    for round_ in range(3):
        fill(bus, "t", 10, 10 * round_)
        records = take(consumer, 10)
        assert numbers(records) == list(range(10 * round_, 10 * round_ + 10))
        # Offsets are counted along the topic, or along each partition.
        lines = {record: record.partition * (running.order == "partition") for record in records}
        for record, line in lines.items():
            assert record.offset > last.get(line, running.first_offset - 1)
        for record, line in lines.items():
            last[line] = max(record.offset, last.get(line, 0))
        consumer.commit()
        bus.flush_now()
        assert drop_old(bus, records[-1].timestamp_us + 1) == 10
        fresh = bus.subscribe(["t"], start="earliest")
        assert fresh.poll() == []
        assert fresh.lag() == 0
        assert bus.topics() == ["t"]


@pytest.mark.not_for("kafka", "Kafka sees to size by itself, per partition and whole segments")
def test_retention_by_size_drops_the_oldest_of_what_takes_most(opener: Opener) -> None:
    bus = opener(Retention(max_age_s=None, max_bytes=400_000))
    for number in range(1000):
        bus.append("alerts" if number < 20 else "reports", b"%d" % number + b" " * 1000)
    bus.flush_now()
    removed = drop_old(bus, 0)
    assert 500 < removed < 900
    left = take(bus.subscribe(["alerts", "reports"], start="earliest"), 1000 - removed)
    assert numbers(left) == [*range(20), *range(20 + removed, 1000)]
    assert drop_old(bus, 0) == 0


@pytest.mark.not_for("kafka", "Kafka sees to size by itself, per partition and whole segments")
def test_topics_of_the_same_size_make_room_alike(opener: Opener) -> None:
    bus = opener(Retention(max_age_s=None, max_bytes=6_000_000))
    for number in range(1000):
        bus.append("one" if number < 500 else "two", b"%d" % number + bytes(10_000))
    bus.flush_now()
    removed = drop_old(bus, 0)
    left = take(bus.subscribe(["one", "two"], start="earliest"), 1000 - removed)
    sizes = [sum(record.topic == name for record in left) for name in ("one", "two")]
    assert abs(sizes[0] - sizes[1]) <= 2**20 // 10_000 + 1


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(BusUnavailableError, match=r"'carrier:pigeon'.*memory:.*embedded:.*kafka:"):
        open_bus("carrier:pigeon")


def test_a_plain_memory_bus_is_nobody_elses() -> None:
    one, other = open_bus("memory:"), open_bus("memory:")
    fill(one, "t", 1)
    assert other.topics() == []
    one.close()
    other.close()


def test_a_named_memory_bus_is_shared_and_goes_with_the_last_who_holds_it() -> None:
    uri = f"memory:{uuid.uuid4().hex}"
    one, other = open_bus(uri), open_bus(uri)
    fill(one, "t", 3)
    assert numbers(other.subscribe(["t"], start="earliest").poll()) == [0, 1, 2]
    assert isinstance(other, EmbeddedBus)
    folder = other.path.parent
    one.close()
    del one
    gc.collect()
    assert folder.is_dir()
    other.close()
    del other
    gc.collect()
    assert not folder.exists()
    again = open_bus(uri)
    assert again.topics() == []
    again.close()
