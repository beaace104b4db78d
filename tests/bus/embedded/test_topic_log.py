"""The files of a topic: against a plain list, after sudden death, and damaged."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mercury.bus.api import Record
from mercury.bus.embedded import log_page
from mercury.bus.embedded.record_frame import (
    is_whole,
    pack_frame,
    read_header,
    records_of,
    sizes_of,
)
from mercury.bus.embedded.topic_log import TopicLog
from mercury.bus.headers import encode_headers
from mercury.model.errors import BusCorruptError

HEADERS = encode_headers((("kind", b"echo"),))


PARTITIONS = 4


def partitions_of(keys: Iterable[bytes], spread: Iterator[int]) -> list[int]:
    """Where records belong: by their key, and those without one in turn."""
    return [(zlib.crc32(key) if key else next(spread)) % PARTITIONS for key in keys]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TopicLog]:
    TopicLog.create(tmp_path / "1")
    log = TopicLog(tmp_path / "1", "t")
    yield log
    log.close()


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments, index and reads so small that every border is crossed."""
    monkeypatch.setattr("mercury.bus.embedded.topic_log.SEGMENT_BYTES", 1000)
    monkeypatch.setattr("mercury.bus.embedded.topic_log.INDEX_EVERY_BYTES", 100)
    monkeypatch.setattr("mercury.bus.embedded.log_files.READ_BYTES", 150)


def append(log: TopicLog, *values: bytes, at_us: int = 1) -> None:
    log.append([(b"k", HEADERS, value) for value in values], at_us, PARTITIONS, count())


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def reopened(log: TopicLog) -> TopicLog:
    other = TopicLog(log.folder, "t")
    other.recover()
    return other


# Frames


@given(
    entries=st.lists(st.tuples(st.binary(max_size=9), st.just(HEADERS), st.binary()), min_size=1)
)
def test_a_frame_gives_back_what_it_was_made_of(entries: list[tuple[bytes, bytes, bytes]]) -> None:
    frame = pack_frame(7, 99, entries, PARTITIONS, count())
    partitions = partitions_of([key for key, _, _ in entries], count())
    header = read_header(b"junk" + frame, 4)
    assert is_whole(b"junk" + frame, 4, header)
    assert (header.size, header.end) == (len(frame), 7 + len(entries))
    records = records_of("t", b"junk" + frame, 4)
    assert records == [
        Record("t", partitions[index], 7 + index, 99, key, (("kind", b"echo"),), value)
        for index, (key, _, value) in enumerate(entries)
    ]
    assert sum(sizes_of(frame)) == len(frame) - 28


@given(at=st.integers(0, 99), flip=st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    frame = bytearray(pack_frame(1, 1, [(b"key", HEADERS, b"value" * 9)], PARTITIONS, count()))
    frame[at % len(frame)] ^= flip
    assert not is_whole(bytes(frame), 0, read_header(bytes(frame)))


# Against a list


class Twin:
    """What a topic should hold, as a list."""

    def __init__(self) -> None:
        # Offset, time, partition, value, length of key and value.
        self.records: list[tuple[int, int, int, bytes, int]] = []
        self.next = 1

    def read(self, after: int, limit: int, owned: frozenset[int] | None) -> list[bytes]:
        wanted = [
            value
            for offset, _, partition, value, _ in self.records
            if offset > after and (owned is None or partition in owned)
        ]
        return wanted[:limit]

    def offset_at(self, time_us: int) -> int:
        return next((one[0] for one in self.records if one[1] >= time_us), self.next)


STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 200), min_size=1, max_size=5)),
    st.tuples(st.just("remove"), st.integers(0, 200)),
    st.tuples(st.just("read"), st.tuples(st.integers(0, 60), st.integers(1, 9), st.booleans())),
    st.tuples(st.just("time"), st.integers(0, 60)),
    st.tuples(st.just("reopen"), st.none()),
)


@given(steps=st.lists(STEP, max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_a_topic_is_a_list(small_files: None, steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        TopicLog.create(Path(folder) / "1")
        log, twin, now_us = TopicLog(Path(folder) / "1", "t"), Twin(), 0
        spread, twin_spread = count(), count()
        try:
            for what, argument in steps:
                if what == "append":
                    assert isinstance(argument, list)
                    now_us += argument[0] % 3
                    entries = [(b"k" * (size % 4), b"", bytes(size)) for size in argument]
                    log.append(entries, now_us, PARTITIONS, spread)
                    partitions = partitions_of([key for key, _, _ in entries], twin_spread)
                    for part, (key, _, value) in zip(partitions, entries, strict=True):
                        size = len(key) + len(value)
                        twin.records.append((twin.next, now_us, part, value, size))
                        twin.next += 1
                elif what == "remove":
                    assert isinstance(argument, int)
                    kept = [one for one in twin.records if one[0] >= argument]
                    assert log.remove(argument) == len(twin.records) - len(kept)
                    twin.records = kept
                elif what == "read":
                    assert isinstance(argument, tuple)
                    after, limit, some = argument
                    owned = frozenset({1, 3}) if some else None
                    while True:
                        found = log.read(after, limit, owned)
                        assert values(found) == twin.read(after, limit, owned)
                        if len(found) < limit:
                            break
                        after = found[-1].offset
                elif what == "time":
                    assert isinstance(argument, int)
                    assert log.offset_at(argument) == twin.offset_at(argument)
                else:
                    log.close()
                    log = TopicLog(Path(folder) / "1", "t")
                sizes = {one[0]: 14 + one[4] for one in twin.records}
                assert (
                    sum(sizes.values())
                    <= log.kept_bytes()
                    <= sum(size + 28 for size in sizes.values())
                )
                for size in (1, 100, 1000, 5000):
                    past = log.offset_past(size, 10**9)
                    gone = sum(one for offset, one in sizes.items() if offset < past)
                    assert past > min(sizes, default=0)
                    assert gone <= size + 28 + 250  # one record may stand over
        finally:
            log.close()


def test_a_frame_larger_than_a_read(log: TopicLog, small_files: None) -> None:
    append(log, b"small")
    append(log, bytes(5000))
    append(log, b"after")
    assert values(log.read(0, 10)) == [b"small", bytes(5000), b"after"]


def test_a_second_view_follows_without_a_word(log: TopicLog, small_files: None) -> None:
    other = TopicLog(log.folder, "t")
    for number in range(200):
        append(log, b"%d" % number)
        (record,) = other.read(number, 10)
        assert record.value == b"%d" % number
        if number % 50 == 49:
            log.remove(number - 10)
    other.close()


# Sudden death


def test_what_was_written_but_not_announced_does_not_exist(log: TopicLog) -> None:
    append(log, b"one")
    state = log.state()
    append(log, b"lost", b"lost")
    log._page.publish_end(state)  # as if the writer had died before
    assert values(log.read(0, 10)) == [b"one"]
    append(log, b"two")
    assert values(log.read(0, 10)) == [b"one", b"two"]


def test_a_writer_that_dies_while_it_turns_the_page(log: TopicLog) -> None:
    append(log, b"one")
    other_slot = 64 if log._page._words[0] & 1 else 128
    log._page._memory[other_slot : other_slot + 20] = os.urandom(20)
    assert values(log.read(0, 10)) == [b"one"]
    append(log, b"two")
    assert values(log.read(0, 10)) == [b"one", b"two"]


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every page seem to be of an earlier start of the machine."""
    monkeypatch.setattr(log_page, "_boot_id", lambda: b"another start".ljust(36, b"\0"))


@pytest.mark.parametrize("cut", [1, 30, 58, 59])
def test_a_tail_that_never_reached_the_disk(log: TopicLog, power_cut: None, cut: int) -> None:
    for number in range(10):
        append(log, b"%d" % number)
    path = log._files.path(1)
    os.truncate(path, path.stat().st_size - cut)
    again = reopened(log)
    left = values(again.read(0, 100))
    assert left == [b"%d" % number for number in range(10)][: len(left)]
    assert len(left) == (9 if cut <= 58 else 8)
    append(again, b"new")
    assert values(again.read(0, 100)) == [*left, b"new"]
    again.close()


def test_a_hole_in_the_middle_ends_the_log(
    log: TopicLog, power_cut: None, small_files: None
) -> None:
    for number in range(100):
        append(log, b"%02d" % number)
    segments = log._files.segments()
    assert len(segments) > 3
    damaged = bytearray(log._files.path(segments[-2]).read_bytes())
    damaged[100:200] = bytes(100)
    log._files.path(segments[-2]).write_bytes(damaged)
    again = reopened(log)
    left = again.read(0, 200)
    assert [record.offset for record in left] == list(range(1, segments[-2] + 1))
    append(again, b"new")
    assert again.read(0, 200)[-1].offset == segments[-2] + 1
    again.close()


def test_files_known_to_be_on_the_disk_are_not_checked(
    log: TopicLog, power_cut: None, small_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        append(log, b"%02d" % number)
    log.sync()
    looked: list[int] = []
    good_part = TopicLog._good_part

    def look(self: TopicLog, state: log_page.LogState) -> log_page.LogState:
        looked.append(state.segment)
        return good_part(self, state)

    monkeypatch.setattr(TopicLog, "_good_part", look)
    again = reopened(log)
    assert looked == [log.state().segment]
    assert len(again.read(0, 200)) == 100
    again.close()
    reopened(log).close()
    assert len(looked) == 1  # once after a start


def test_a_page_that_was_lost_is_made_anew(log: TopicLog, power_cut: None) -> None:
    append(log, b"one", b"two")
    for slot in (64, 128):
        log._page._memory[slot : slot + 44] = bytes(44)
    again = reopened(log)
    assert values(again.read(0, 10)) == [b"one", b"two"]
    again.close()


# Damage


def test_damage_is_told_with_its_place(log: TopicLog) -> None:
    for number in range(10):
        append(log, b"%d" % number)
    path = log._files.path(1)
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(BusCorruptError, match=r"00001\.log is damaged at byte 1\d\d"):
        log.read(0, 10)


def test_a_short_file_is_damage_too(log: TopicLog) -> None:
    append(log, b"one")
    os.truncate(log._files.path(1), 40)
    with pytest.raises(BusCorruptError, match="damaged at byte 0"):
        log.read(0, 10)


def test_a_missing_or_damaged_head_is_a_corrupt_bus(tmp_path: Path) -> None:
    with pytest.raises(BusCorruptError, match="head is missing"):
        TopicLog(tmp_path, "t")
    (tmp_path / "head").write_bytes(os.urandom(4096))
    with pytest.raises(BusCorruptError, match="head is damaged"):
        TopicLog(tmp_path, "t")
