"""What is acknowledged is on the disk: against a copy of all that was ever synced."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mercury.bus import open_bus
from mercury.bus.api import Sync
from mercury.bus.embedded import disk_sync, log_page, topic_log
from mercury.bus.embedded.assignment import ALL_PARTITIONS, Assignment
from mercury.bus.embedded.disk_sync import DiskSync
from mercury.model.errors import BusFullError


class Disk:
    """What would be left if the machine stopped now: files as they were last synced."""

    def __init__(self, folder: Path, bus: Path) -> None:
        self.folder = folder
        self.bus = bus
        self.syncs = 0
        self.failure: OSError | None = None
        self.may_sync = threading.Event()
        self.may_sync.set()

    def sync(self, path: Path) -> None:
        self.may_sync.wait(10.0)
        if self.failure is not None:
            raise self.failure
        if path.is_file():
            self.syncs += 1
            copy = self.folder / path.relative_to(self.bus.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)

    def values_after_power_cut(self, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
        """What a consumer of the topic finds when the machine runs again."""
        folder = self.folder.with_name("again")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        for file in self.bus.parent.glob("bus.db*"):  # SQLite syncs its own
            if file.is_file():
                shutil.copy(file, folder)
        with monkeypatch.context() as restarted:
            restarted.setattr(log_page, "_boot_id", lambda: b"another start".ljust(36, b"\0"))
            restarted.setattr(disk_sync, "sync_file", lambda path: None)
            bus = open_bus(f"embedded:{folder / 'bus.db'}")
            try:
                return [one.value for one in bus.subscribe(["t"], start="earliest").poll(10_000)]
            finally:
                bus.close()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", tmp_path / "bus.db")
    for module in (disk_sync, topic_log):
        monkeypatch.setattr(module, "sync_file", disk.sync)
    yield disk
    disk.failure = None
    disk.may_sync.set()


@pytest.mark.parametrize("sync", ["batch", "always"])
def test_what_was_acknowledged_survives_a_stop_of_the_machine(
    disk: Disk, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "SEGMENT_BYTES", 2000)

    async def scenario() -> None:
        bus = open_bus(f"embedded:{disk.bus}", sync=sync)
        appended = []
        try:
            for number in range(60):
                appended.append(b"%d" % number)
                bus.append("t", appended[-1])
                if number % 3 == 0:
                    await bus.flush()
                elif number % 3 == 1:
                    bus.flush_now()
                else:
                    continue
                assert disk.values_after_power_cut(monkeypatch) == appended
        finally:
            bus.close()

    asyncio.run(scenario())


def test_process_waits_for_no_disk(disk: Disk) -> None:
    bus = open_bus(f"embedded:{disk.bus}")
    bus.append("t", b"1")
    bus.flush_now()
    bus.close()
    assert disk.syncs == 0


def test_readers_need_not_wait_and_many_share_a_sync(disk: Disk) -> None:
    async def scenario() -> None:
        bus = open_bus(f"embedded:{disk.bus}", sync="batch")
        try:
            consumer = bus.subscribe(["t"])
            disk.may_sync.clear()
            waiting = []
            for number in range(200):
                bus.append("t", b"%d" % number)
                waiting.append(asyncio.ensure_future(bus.flush()))
                await asyncio.sleep(0)
            found = 0
            while found < 200:
                found += len(await consumer.read(timeout_s=5.0))
            assert not any(one.done() for one in waiting)
            disk.may_sync.set()
            await asyncio.gather(*waiting)
            assert 1 <= disk.syncs <= 3
        finally:
            bus.close()

    asyncio.run(scenario())


def test_a_disk_that_fails_acknowledges_nothing(disk: Disk) -> None:
    async def scenario() -> None:
        bus = open_bus(f"embedded:{disk.bus}", sync="batch")
        try:
            bus.append("t", b"1")
            disk.failure = OSError(28, "No space left on device")
            with pytest.raises(BusFullError, match="no space is left"):
                await bus.flush()
            bus.append("t", b"2")
            with pytest.raises(BusFullError, match="no space is left"):
                bus.flush_now()
            disk.failure = None
            bus.append("t", b"3")
            await bus.flush()
        finally:
            bus.close()

    asyncio.run(scenario())


def test_offsets_are_committed_when_what_came_of_them_is_on_the_disk(
    disk: Disk,
) -> None:
    """A stop of the machine must not lose what was made of a record and keep the commit."""

    async def scenario() -> None:
        bus = open_bus(f"embedded:{disk.bus}", sync="batch")
        other = open_bus(f"embedded:{disk.bus}")

        def committed() -> int:
            (offset,) = other._file.execute("SELECT max(offset) FROM committed").fetchone()  # type: ignore[attr-defined]
            return int(offset or 0)

        try:
            group = bus.subscribe(["in"], group="g", start="earliest")
            for number in range(3):
                other.append("in", b"%d" % number)
            other.flush_now()
            disk.may_sync.clear()
            (first, *_) = await group.read(1)
            bus.append("t", first.value)
            group.commit()
            flushed = asyncio.ensure_future(bus.flush())
            await asyncio.sleep(0.05)  # as long as a commit may take at most, and more
            assert committed() == 0
            await group.read(1)
            group.commit()  # what came of this one was not even appended
            disk.may_sync.set()
            await flushed
            assert committed() == first.offset
            await bus.flush()
            assert committed() == first.offset + 1
        finally:
            disk.may_sync.set()
            bus.close()
            other.close()

    asyncio.run(scenario())


def test_what_failed_between_two_calls_is_told_to_the_next() -> None:
    calls: list[OSError | None] = []
    heard = threading.Event()
    disk = DiskSync()
    try:
        disk.written(Path("/proc/self/mem/none"))  # no folder: neither there nor gone

        def callback(error: OSError | None) -> None:
            calls.append(error)
            heard.set()

        disk.when_synced(callback)
        assert heard.wait(5.0)
        assert isinstance(calls[0], NotADirectoryError)
        disk.sync_now()  # told once
    finally:
        disk.close()


def test_offsets_up_to_a_limit() -> None:
    assignment = Assignment("me", ("t",), "g")
    assignment.pending_commits = {1: {ALL_PARTITIONS: 20}, 2: {0: 5, 1: 9}, 3: {4: 4}}
    limit = {1: {ALL_PARTITIONS: 10}, 2: {ALL_PARTITIONS: 7}}
    assert assignment.pending_up_to(limit) == [(1, ALL_PARTITIONS, 10), (2, 0, 5), (2, 1, 7)]
    assignment.drop_pending(limit)
    assert assignment.pending_commits == {1: {ALL_PARTITIONS: 20}, 2: {1: 9}, 3: {4: 4}}
    assignment.drop_pending(None)
    assert assignment.pending_commits == {}
