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
from mercury.bus.embedded import log_page, topic_log
from mercury.bus.embedded.log_files import Place
from mercury.bus.embedded.record_frame import (
    is_whole,
    pack_frame,
    read_header,
    records_of,
    sizes_of,
)
from mercury.bus.embedded.topic_log import TopicLog
from mercury.bus.headers import encode_headers

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
    return TopicLog(log.folder, "t")


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
                    past = log.offset_past(size)
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


def test_time_goes_on_when_the_clock_is_set_back(log: TopicLog) -> None:
    hour = 3600

    def appended_at(clock_s: int, uptime_s: int) -> float:
        entries = [(b"", b"", b"")]
        log.append(entries, clock_s * 10**6, 4, count(), uptime_us=uptime_s * 10**6)
        return log.state().last_us / 1e6

    assert appended_at(100 * hour, 50) == 100 * hour
    assert appended_at(101 * hour, 60) == 101 * hour  # set an hour ahead
    assert appended_at(100 * hour + 20, 70) == 101 * hour + 5  # and back: at half its pace
    assert appended_at(100 * hour + 20, 70) == 101 * hour + 5
    assert appended_at(100 * hour + 30, 80) == 101 * hour + 10
    assert appended_at(102 * hour, 80 + 2 * hour) == 102 * hour  # the clock has caught up
    other = reopened(log)
    times = [record.timestamp_us for record in other.read(0, 10)]
    assert times == sorted(times)
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
    damage_slot(log, current=False)
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


@pytest.mark.parametrize("lost", ["nothing", "reserved", "page", "reserved and page"])
def test_no_offset_is_given_twice(log: TopicLog, power_cut: None, lost: str) -> None:
    """Whoever has read or committed so far misses nothing that comes."""
    for number in range(10):
        append(log, b"%d" % number)
    os.truncate(log._files.path(1), 3 * 59)
    for name in ("reserved", "head"):
        if {"head": "page"}.get(name, name) in lost:
            (log.folder / name).unlink()
    again = TopicLog(log.folder, "t", committed=lambda: 10)
    append(again, b"new")
    (record,) = again.read(10, 100)
    assert record.value == b"new"
    assert values(again.read(0, 100)) == [b"0", b"1", b"2", b"new"]
    assert [why for _, why in again.gaps()] == ["skipped"]
    again.close()


def test_offsets_are_reserved_before_they_are_given_out(
    log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "RESERVED_OFFSETS", 7)
    other = TopicLog(log.folder, "t")
    for number in range(100):  # two writers, and neither knows what the other has reserved
        append((log, other)[number % 3 == 0], *[b"%d" % number] * (number % 11 + 1))
        assert log.state().next <= log._read_reserved() <= log.state().next + 7
    flip(log.folder / "reserved", 0)
    assert log._read_reserved() == 0  # rather nothing than a wrong number
    other.close()


def test_files_known_to_be_on_the_disk_are_not_checked(
    log: TopicLog, power_cut: None, small_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        append(log, b"%02d" % number)
    log.sync()
    checked: list[int] = []
    end_behind = TopicLog._end_behind

    def noting(self: TopicLog, place: Place) -> tuple[Place, int]:
        checked.append(place.segment)
        return end_behind(self, place)

    monkeypatch.setattr(TopicLog, "_end_behind", noting)
    again = reopened(log)
    assert checked == [log.state().segment]
    assert len(again.read(0, 200)) == 100
    again.close()
    reopened(log).close()
    assert len(checked) == 1  # once after a start


# Damage


def flip(path: Path, at: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)


def damage_slot(log: TopicLog, *, current: bool) -> None:
    slot = (64, 128)[(log._page._words[0] & 1) ^ (not current)]
    log._page._memory[slot : slot + 20] = os.urandom(20)


FRAME = 28 + 14 + 1 + len(HEADERS) + 2  # of a record with two digits


@pytest.mark.parametrize("at", [0, 4, 8, 16, 24, 28, 30, FRAME - 1])  # in each field
@pytest.mark.parametrize("frame", [0, 1, 50, 99])
def test_damage_costs_the_damaged_frame(log: TopicLog, at: int, frame: int) -> None:
    for number in range(100):
        append(log, b"%02d" % number)
    flip(log._files.path(1), frame * FRAME + at)
    left = [b"%02d" % number for number in range(100) if number != frame]
    assert values(log.read(0, 200)) == left
    assert values(log.read(frame, 200)) == left[frame:]
    offsets = [offset for one in log.columns(1, 101) for offset in one.offsets]
    assert offsets == [number + 1 for number in range(100) if number != frame]
    append(log, b"new")
    assert values(log.read(0, 200)) == [*left, b"new"]
    ((gap, why),) = log.gaps()
    assert (gap.first, gap.end, why) == (frame + 1, frame + 2, None)


def test_damage_is_logged_once_and_can_be_accepted(
    log: TopicLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        append(log, b"%02d" % number, at_us=10**15)
    flip(log._files.path(1), 50 * FRAME)
    for _ in range(3):
        log.read(0, 200)
    (said,) = caplog.messages
    assert f"00001.log is damaged at byte {50 * FRAME}: record 51 cannot be" in said
    assert ", sent after 2001-09-09 01:46:40 UTC" in said
    (gap,) = log.accept_gaps()
    assert (gap.first, gap.end) == (51, 52)
    assert log.accept_gaps() == []
    again = reopened(log)
    assert len(again.read(0, 200)) == 99
    assert [why for _, why in again.gaps()] == ["accepted"]
    assert len(caplog.messages) == 1
    again.close()


def test_a_payload_that_looks_like_a_frame_is_none(log: TopicLog) -> None:
    append(log, b"first")
    append(log, pack_frame(3, 1, [(b"", b"", b"forged")], PARTITIONS, count()))
    append(log, b"third")
    flip(log._files.path(1), 28 + 14 + 1 + len(HEADERS) + 5 + 4)  # the check sum of the second
    assert values(log.read(0, 10)) == [b"first", b"third"]


@pytest.mark.parametrize("power", ["on", "cut"])
@pytest.mark.parametrize("damage", ["zeros", "short", "empty", "missing"])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_a_damaged_file(
    log: TopicLog, small_files: None, monkeypatch: pytest.MonkeyPatch,
    power: str, damage: str, which: int,
) -> None:  # fmt: skip
    for number in range(100):
        append(log, b"%02d" % number)
    segments = log._files.segments()
    assert len(segments) > 3
    segment = segments[which]
    path = log._files.path(segment)
    if damage == "zeros":
        path.write_bytes(bytes(path.stat().st_size))
    elif damage == "missing":
        path.unlink()
    else:
        os.truncate(path, 100 if damage == "short" else 0)
    if power == "cut":
        monkeypatch.setattr(log_page, "_boot_id", lambda: b"another start".ljust(36, b"\0"))
    again = reopened(log)
    lost = range(segment, [*segments, 101][segments.index(segment) + 1])
    kept = [one for one in range(1, 101) if one not in lost]
    if damage == "short":
        kept = sorted([*kept, segment])  # its first frame is whole
    found = [record.offset for record in again.read(0, 200)]
    assert found == kept
    for number in range(30):
        append(again, b"%02d" % number)
    found += range(again.state().next - 30, again.state().next)
    assert [record.offset for record in again.read(0, 200)] == found
    assert [offset for one in again.columns(1, 10**6) for offset in one.offsets] == found
    for offset in found:
        assert again.read(offset - 1, 1)[0].offset == offset
    assert again.kept_bytes() > 0
    assert again.offset_at(0) == found[0] or damage != "missing"
    while again.state().oldest < again.state().next:  # retention comes to an end
        assert again.remove(again.offset_past(100)) > 0
    again.close()


@pytest.mark.parametrize("damage", ["one slot", "both slots", "version", "all", "missing", "short"])
def test_a_damaged_page_is_made_anew(log: TopicLog, damage: str) -> None:
    other = TopicLog(log.folder, "t")
    for number in range(10):
        append(log, b"%d" % number)
    page = log.folder / "head"
    if damage in ("one slot", "both slots"):
        damage_slot(log, current=True)
    if damage == "both slots":
        damage_slot(log, current=False)
    if damage == "version":
        log._page._words[0] += 3
    if damage == "all":
        log._page._memory[:] = os.urandom(4096)
    if damage in ("missing", "short"):
        page.unlink()  # a file that is cut while it is in memory would end the process
    if damage == "short":
        page.write_bytes(b"MERC")
    numbers = [b"%d" % number for number in range(10)]
    for one in (log, other, log):
        assert values(one.read(0, 100)) == numbers
        append(one, b"new")
        numbers.append(b"new")
    assert values(other.read(0, 100)) == numbers
    again = reopened(log)
    assert values(again.read(0, 100)) == numbers
    again.close()
    other.close()


def test_a_topic_whose_folder_is_gone_begins_anew(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "1", "t", committed=lambda: 70)
    append(log, b"new")
    assert [record.offset for record in log.read(70, 10)] == [71]
    log.close()


def test_an_index_that_is_damaged_misleads_nobody(log: TopicLog, small_files: None) -> None:
    for number in range(40):
        append(log, b"%02d" % number, at_us=number + 1)
    index = log._files.index_path(log._files.segments()[0])
    for at in range(index.stat().st_size):
        flip(index, at)
        for number in (1, 7, 14, 15):
            again = reopened(log)
            assert again.read(number - 1, 1)[0].offset == number
            assert again.offset_at(number) == number
            again.close()
        flip(index, at)


@given(
    damage=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=5),
    cut=st.integers(0, 4000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_whatever_is_read_was_written(
    small_files: None, damage: list[tuple[int, int]], cut: int
) -> None:
    """Bytes anywhere in the files, any of them cut: no loop, no invention, and appends go on."""
    with tempfile.TemporaryDirectory() as folder:
        TopicLog.create(Path(folder) / "1")
        log = TopicLog(Path(folder) / "1", "t")
        for number in range(60):
            append(log, b"%02d" % number, at_us=number + 1)
        files = sorted(log.folder.glob("*.log"))
        data = bytearray(b"".join(file.read_bytes() for file in files))
        touched = set()
        for at, byte in damage:
            touched.add(at // FRAME)
            data[at % len(data)] = byte
        sizes = [file.stat().st_size for file in files]
        for file, size in zip(files, sizes, strict=True):
            file.write_bytes(data[:size])
            data = data[size:]
        if cut < sum(sizes):
            os.truncate(files[cut % len(files)], cut % sizes[cut % len(files)])
        found = log.read(0, 100)
        for record in found:
            assert record.value == b"%02d" % (record.offset - 1)
        if cut >= sum(sizes):
            assert len(found) >= 60 - len(touched)
        append(log, b"new")
        assert values(log.read(found[-1].offset if found else 0, 100)) == [b"new"]
        lost = sum(gap.end - gap.first for gap, _ in log.gaps())
        assert lost + len(found) == 60
        log.close()
