"""The fetch buffer between the thread that fetches and who reads."""

from __future__ import annotations

import random

from mercury.bus import Record
from mercury.bus.kafka.fetch_buffer import FULL_BYTES, FULL_RECORDS, FetchBuffer


def record(topic: str, part: int, offset: int, time_us: int = 0, size: int = 1) -> Record:
    return Record(topic, part, offset, time_us, b"", (), bytes(size))


def fetch_buffer(*topics: str, partitions: int = 2, at: int = 0) -> FetchBuffer:
    made = FetchBuffer(topics)
    made.assign({(topic, part): at for topic in topics for part in range(partitions)})
    return made


def test_topics_come_by_rank_then_by_time() -> None:
    found = fetch_buffer("b", "a")
    found.put([record("a", 0, 0, 5), record("b", 0, 0, 9), record("b", 1, 0, 3)])
    assert len(found) == 3
    assert [(one.topic, one.timestamp_us) for one in found.take(2)] == [("b", 3), ("b", 9)]
    assert [(one.topic, one.timestamp_us) for one in found.take(2)] == [("a", 5)]
    assert found.take(2) == []
    assert len(found) == 0


def test_a_partition_keeps_its_order_whatever_the_clock_did() -> None:
    dice = random.Random(7)
    for _ in range(50):
        found = fetch_buffer("t", partitions=3)
        for offset in range(20):
            found.put([record("t", part, offset, dice.randrange(100)) for part in range(3)])
        taken = []
        while some := found.take(dice.randrange(1, 9)):
            taken += some
        for part in range(3):
            mine = [one for one in taken if one.partition == part]
            assert [one.offset for one in mine] == list(range(20))
            times = [one.timestamp_us for one in mine]
            assert times == sorted(times)


def test_what_is_known_or_not_ours_is_left_out() -> None:
    found = fetch_buffer("t", at=5)
    found.put([record("t", 0, 4), record("t", 0, 5), record("t", 0, 7), record("t", 0, 7)])
    found.put([record("t", 9, 7), record("other", 0, 7)])
    assert [one.offset for one in found.take(10)] == [5, 7]


def test_commits_say_how_far_it_was_handed_out() -> None:
    found = fetch_buffer("t")
    found.put([record("t", 0, 0), record("t", 0, 1), record("t", 1, 0)])
    assert found.take_commits() == {}
    found.take(1)
    assert found.take_commits() == {("t", 0): 1}
    assert found.take_commits() == {}
    found.take(9)
    assert found.take_commits() == {("t", 0): 2, ("t", 1): 1}


def test_a_revoked_partition_is_forgotten() -> None:
    found = fetch_buffer("t")
    found.put([record("t", 0, 0), record("t", 1, 0)])
    found.take(1)
    found.revoke([("t", 0)])
    assert found.take_commits() == {}
    assert [one.partition for one in found.take(9)] == [1]
    assert list(found.assignments()) == [("t", 1)]


def test_lag_counts_from_what_was_handed_out_and_still_exists() -> None:
    found = fetch_buffer("t")
    found.put([record("t", 0, offset) for offset in range(10)])
    found.take(4)
    spans = {("t", 0): (0, 10), ("t", 1): (3, 5), ("gone", 0): (0, 100)}
    assert found.lag(spans) == 6 + 2
    assert found.waiting(spans) == {("t", 1): 0}
    assert not found.waiting({("t", 0): (0, 10), ("t", 1): (5, 5)})


def test_a_full_topic_is_held_back_until_there_is_room() -> None:
    for size, count in ((1, FULL_RECORDS), (FULL_BYTES // 4, 4)):
        found = fetch_buffer("t", "u")
        found.put([record("t", 0, offset, size=size) for offset in range(count - 1)])
        assert found.pause_and_resume() == ([], [])
        found.put([record("t", 0, count - 1, size=size)])
        assert found.pause_and_resume() == ([("t", 0), ("t", 1)], [])
        assert found.holds_back
        assert found.pause_and_resume() == ([], [])
        assert not found.waiting({("t", 0): (0, 10 * count)})  # it cannot take more
        found.take(count // 2 + 1)
        assert found.pause_and_resume() == ([], [("t", 0), ("t", 1)])
        assert not found.holds_back


def test_what_was_handed_out_of_parked_partitions_can_still_be_committed() -> None:
    found = fetch_buffer("t")
    found.put([record("t", 0, 0), record("t", 1, 0), record("t", 1, 1)])
    found.take(2)
    found.park([("t", 0), ("t", 1)])
    assert found.take(10) == []
    assert list(found.assignments()) == []
    assert found.has_uncommitted
    assert found.parked() == {("t", 0): 1, ("t", 1): 1}
    assert found.take_commits() == {("t", 0): 1, ("t", 1): 1}
    assert not found.has_uncommitted
    assert found.committable() == {("t", 0), ("t", 1)}


def test_a_parked_partition_that_comes_back_remembers_what_is_not_committed() -> None:
    found = fetch_buffer("t")
    found.put([record("t", part, 0) for part in range(2)])
    found.take(2)
    found.park([("t", 0), ("t", 1)])
    found.assign({("t", 1): 1})
    assert found.take_commits() == {("t", 1): 1}
    assert found.committable() == {("t", 1)}
    found.put([record("t", 1, 0), record("t", 1, 1), record("t", 0, 1)])
    assert [(one.partition, one.offset) for one in found.take(10)] == [(1, 1)]
