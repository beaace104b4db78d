"""Replay: what was recorded comes again, in order, at the pace that was asked for."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

from pipeline.history import recording
from pipeline.whole_bus import store_batch
from pyspark.sql import SparkSession

from mercury.bus import Record, open_bus
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.replay import Replay, Stored, in_order, recorded


class Clock:
    """Stands still unless somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def by_key(records: list[Record]) -> dict[tuple[str, bytes], list[bytes]]:
    found = defaultdict(list)
    for record in records:
        found[record.topic, record.key].append(record.value)
    return found


def test_recorded_stored_and_replayed_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path / "h")
    with recording.opened(tmp_path / "old.db") as old:
        recording.fill(old, steps=30, vehicles=5)
        before = recording.everything(old)
    store_batch(spark, f"embedded:{tmp_path / 'old.db'}", folder.path)
    with recording.opened(tmp_path / "new.db") as new:
        rows = recorded(spark, folder, recording.TOPICS)
        assert Replay(new, math.inf).run(in_order(rows)) == len(before)
        after = recording.everything(new)
    assert by_key(after) == by_key(before)
    # What poison had beside it, nobody can make again.
    headers = {one.value: one.headers for one in before if one.headers and one.value}
    assert headers == {one.value: one.headers for one in after if one.value in headers}

    # A part of it.
    middle_us = recording.BEGIN_US + recording.HOUR_US // 2
    some = list(in_order(recorded(spark, folder, ("events.*",), middle_us)))
    assert {one.topic for one in some} == {"events.collision", "events.obstacle"}
    assert len(some) == 15 * 4
    assert min(one.time_us for one in some) == middle_us
    assert [one.time_us for one in some] == sorted(one.time_us for one in some)


def test_the_gaps_are_the_original_ones_divided_by_speed() -> None:
    clock = Clock()
    bus = open_bus("memory:")
    consumer = bus.subscribe(["reports"])
    seen: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        seen.append((clock.now_s - 100.0, len(consumer.poll())))  # what is durable by now
        clock.sleep(seconds)

    times_s = [0, 0, 10, 10.0001, 30]
    rows = [Stored(int(at * 1e6), "reports", b"k", None, b"v") for at in times_s]
    replay = Replay(bus, 10.0, clock=clock, sleep=sleep)
    assert replay.run(rows) == 5
    assert seen == [(0.0, 2), (1.0, 2)]
    assert clock.now_s == 103.0
    assert len(consumer.poll()) == 1
    bus.close()


def test_an_interruption_leaves_what_was_put_back() -> None:
    bus = open_bus("memory:")
    consumer = bus.subscribe(["reports"])

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    rows = [Stored(at * 10**6, "reports", b"k", None, b"v") for at in range(5)]
    replay = Replay(bus, 1.0, clock=Clock(), sleep=interrupt)
    try:
        replay.run(rows)
    except KeyboardInterrupt:
        pass
    assert replay.count == len(consumer.poll()) == 1
    bus.close()


def test_headers_are_made_as_their_writers_make_them() -> None:
    topic, value, key, headers = recording.event("car-1", recording.CRASH)
    position = dict(headers)["position"]
    assert Stored(1, topic, key, position, value).headers == headers
    topic, value, key, headers = recording.report("car-1", 1.0, 2.0)
    assert Stored(1, topic, key, dict(headers)["position"], value).headers == headers
    assert Stored(1, "events.x", b"", None, b"\xff\xff").headers == ()
