"""What only the bus file can get wrong: several processes, sudden death, a bad disk."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import eventually, iterate

from mercury.bus import Bus, Consumer, FromTime, Record, Retention, open_bus
from mercury.bus.buffering import BUFFER_BYTES
from mercury.bus.embedded.assignment import TopicCursor
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.bus.embedded.consumer import EmbeddedConsumer
from mercury.bus.embedded.upkeep import RETENTION_INTERVAL_S, Upkeep
from mercury.model.errors import BusCorruptError, BusError, BusFullError, BusUnavailableError

WAIT_S = 10.0
KEEP = Retention(max_age_s=None, max_bytes=None)
NOW_US = 0  # no record is too old, whatever the time
NOW = (0.0, NOW_US)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Bus]:
    bus = open_bus(f"embedded:{path}")
    try:
        yield bus
    finally:
        bus.close()


@contextlib.contextmanager
def child(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a process of its own, and kill it when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def values(bus: Bus, topic: str) -> list[int]:
    consumer = bus.subscribe([topic], start="earliest")
    found: list[int] = []
    while records := consumer.poll():
        found += [int(record.value) for record in records]
    consumer.close()
    return found


# Several processes

ECHO = """
import asyncio, sys
from mercury.bus import open_bus

async def main():
    bus = open_bus("embedded:" + sys.argv[1])
    consumer = bus.subscribe(["requests"], group="echo", start="earliest")
    print("ready", flush=True)
    while True:
        for record in await consumer.read():
            bus.append("replies", record.value, record.key)
        consumer.commit()

if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_two_processes_answer_each_other(path: Path, loop: str) -> None:
    async def scenario() -> list[float]:
        bus = open_bus(f"embedded:{path}")
        try:
            consumer = bus.subscribe(["replies"])
            latencies = []
            for number in range(200):
                begun = time.perf_counter()
                bus.append("requests", b"%d" % number, b"k")
                records = await consumer.read(timeout_s=WAIT_S)
                latencies.append(time.perf_counter() - begun)
                assert [int(record.value) for record in records] == [number]
            return latencies
        finally:
            bus.close()

    with child(ECHO, path, loop) as process:
        assert line(process) == "ready"
        latencies = asyncio.run(scenario())
    # Loose: a wake-up that did not work would cost a safety check of half a second.
    assert statistics.median(latencies) < 0.02


APPEND = """
import sys
from mercury.bus import open_bus
bus = open_bus("embedded:" + sys.argv[1])
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    bus.append(f"topic.{number % 3}", b"%d" % number, b"%d" % (number % 5))
    if number % 4 == 0:
        bus.flush_now()
bus.close()
"""


def test_several_processes_append_to_one_file(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child(APPEND, path, n, n + 2000)) for n in (0, 2000, 4000)]
        for writer in writers:
            assert writer.wait(WAIT_S) == 0
    with opened(path) as bus:
        found = [values(bus, f"topic.{number}") for number in range(3)]
    assert sorted(number for numbers in found for number in numbers) == list(range(6000))
    for numbers in found:
        for first in (0, 2000, 4000):  # each writer's records keep their order
            mine = [number for number in numbers if first <= number < first + 2000]
            assert mine == sorted(mine)


# Sudden death

# Starts a fresh appender for each line it reads: forking is faster than starting Python.
ACKNOWLEDGE = """
import os, sys
import mercury.bus.embedded.bus
from mercury.bus import open_bus
for begin in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.write(1, b"%d\\n" % os.getpid())
        bus = open_bus("embedded:" + sys.argv[1])
        for number in range(int(begin), 10**9):
            bus.append("t", b"%d" % number, b"k")
            bus.flush_now()
            os.write(1, b"%d\\n" % number)
    os.waitpid(pid, 0)
    os.write(1, b"dead\\n")
"""


def test_nothing_acknowledged_is_lost_by_kill_9(path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    begin = 0
    with child(ACKNOWLEDGE, path) as process:
        assert process.stdin is not None
        for _ in range(50):
            process.stdin.write(f"{begin}\n")
            process.stdin.flush()
            pid = int(line(process))
            acknowledged = begin - 1
            if dice.random() < 0.8:  # else it may die while it opens the file
                acknowledged = int(line(process))
            time.sleep(dice.uniform(0, 0.02))  # killed at random moments
            os.kill(pid, signal.SIGKILL)
            while (said := line(process)) != "dead":
                acknowledged = int(said)
            with opened(path) as bus:
                found = values(bus, "t")
            # All that was acknowledged, and at most the one that was just being written.
            assert found == list(range(len(found)))
            assert acknowledged + 1 <= len(found) <= acknowledged + 2
            begin = len(found)
    assert begin > 50


HOLD_LOCK = """
import sys
from mercury.bus import open_bus
bus = open_bus("embedded:" + sys.argv[1])
bus.append("t", b"0")
bus.flush_now()
(topic,) = bus.refreshed().topics

def hold(state):  # the frame is written, but nobody knows of it yet
    print("holding", flush=True)
    sys.stdin.read()

bus._file.log(topic)._page.publish_end = hold
bus.append("t", b"9")
bus.flush_now()
"""


def test_a_writer_killed_with_the_lock_held_blocks_nobody(path: Path) -> None:
    with child(HOLD_LOCK, path) as process:
        assert line(process) == "holding"
        process.kill()
        process.wait()
    with opened(path) as bus:
        bus.append("t", b"1")
        bus.flush_now()
        assert values(bus, "t") == [0, 1]  # and nothing of the unfinished record


WORK = """
import asyncio, os, sys
from mercury.bus import open_bus

async def main():
    bus = open_bus("embedded:" + sys.argv[1])
    consumer = bus.subscribe(["work"], group="g", start="earliest")
    print("ready", flush=True)
    while True:
        for record in await consumer.read(20):
            bus.append("done", record.value, record.key)
            await asyncio.sleep(0.0005)  # the work on a record
        consumer.commit()

asyncio.run(main())
"""


def test_a_killed_members_work_is_taken_over(path: Path) -> None:
    count = 600
    with opened(path) as bus, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(child(WORK, path)) for _ in range(3)]
        assert [line(worker) for worker in workers] == ["ready"] * 3
        done = bus.subscribe(["done"])
        for number in range(count):
            bus.append("work", b"%d" % number, b"%d" % number)
            if number % 20 == 0:
                bus.flush_now()
            if number == count // 2:
                workers[0].kill()
        bus.flush_now()
        seen: set[int] = set()

        def all_done() -> bool:
            seen.update(int(record.value) for record in done.poll())
            if workers[1].poll() is None and len(seen) > count * 3 // 4:
                workers[1].kill()
            return len(seen) >= count

        eventually(all_done, WAIT_S)
        assert seen == set(range(count))
        assert workers[0].poll() == workers[1].poll() == -signal.SIGKILL


def test_a_member_that_stops_renewing_its_lease_is_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as bus:
        patient = EmbeddedBus(path, retention=KEEP)
        # A live process that is stuck: its socket answers, its lease runs out.
        silent = bus.subscribe(["t"], group="g", start="earliest")
        monkeypatch.setattr("mercury.bus.embedded.consumer.LEASE_S", 0.1)
        heir = patient.subscribe(["t"], group="g", start="earliest")
        for number in range(70):
            bus.append("t", b"%d" % number, b"%d" % number)
        bus.flush_now()
        seen: set[int] = set()
        deadline = time.monotonic() + WAIT_S
        while len(seen) < 70 and time.monotonic() < deadline:
            seen |= {int(record.value) for record in heir.poll()}
        assert seen == set(range(70))
        # It comes back, is told so, and takes its partitions again.
        heir.commit()
        patient.flush_now()
        assert silent.poll() == []
        assert heir.poll() == []  # and lets go of those
        for number in range(70, 140):
            bus.append("t", b"%d" % number, b"%d" % number)
        bus.flush_now()
        assert silent.poll()
        patient.close()


def test_a_dead_listener_is_forgotten_at_the_next_append(path: Path) -> None:
    with opened(path) as bus, child(ECHO, path, "asyncio") as process:
        assert line(process) == "ready"
        heir = bus.subscribe(["requests"], group="echo")
        process.kill()
        process.wait()
        bus.append("requests", b"0", b"some key")
        bus.append("requests", b"1", b"some other key")
        bus.append("requests", b"2", b"yet another")
        bus.flush_now()
        assert sorted(int(record.value) for record in heir.poll()) == [0, 1, 2]


def test_members_look_after_each_other(path: Path) -> None:
    with opened(path) as bus, child(ECHO, path, "asyncio") as process:
        assert line(process) == "ready"
        heir = bus.subscribe(["requests"], group="echo", start="earliest")
        assert isinstance(heir, EmbeddedConsumer)
        for number in range(70):
            bus.append("requests", b"%d" % number, b"%d" % number)
        bus.flush_now()
        mine = len(heir.poll())
        process.kill()  # and nobody appends any more
        process.wait()
        heir._seen_us -= 2_000_000  # time to renew the lease
        heir.poll()
        assert bus._registry.members("echo") == (bus._registry.listener(heir.id),)  # type: ignore[attr-defined]
        assert mine < 70


def test_partitions_lost_between_two_looks_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as bus, opened(path) as other:
        member = bus.subscribe(["t"], group="g", start="earliest")
        assert isinstance(member, EmbeddedConsumer)
        bus.append("t", b"0", b"0")
        bus.flush_now()
        assert len(member.poll()) == 1
        member.commit()
        bus.flush_now()
        heirs: list[Consumer] = []
        select = member._select

        def join_meanwhile(cursor: TopicCursor, limit: int) -> list[Record]:
            if not heirs:
                heirs.append(other.subscribe(["t"], group="g"))
                for number in range(1, 71):
                    other.append("t", b"%d" % number, b"%d" % number)
                other.flush_now()
            return select(cursor, limit)

        monkeypatch.setattr(member, "_select", join_meanwhile)
        member.check_all()
        member._unchecked = False  # as after a wake-up
        mine = member._take(512)
        theirs = heirs[0].poll()
        both = sorted(int(record.value) for record in [*mine, *theirs])
        assert both == list(range(1, 71))


def test_what_was_undone_is_not_believed(path: Path) -> None:
    bus = EmbeddedBus(path, retention=KEEP)
    with opened(path) as other:
        member = bus.subscribe(["t"], group="g", start="earliest")
        bus.append("t", b"0", b"0")
        bus.flush_now()
        assert len(member.poll()) == 1
        member.commit()
        bus.append("new.topic", b"1")
        execute = bus._file.execute

        def no_commit(statement: str, *arguments: object) -> sqlite3.Cursor:
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return execute(statement, *arguments)

        bus._file.execute = no_commit
        with pytest.raises(BusUnavailableError):
            bus.flush_now()  # a topic, and with it a version, that never came to be
        bus._file.execute = execute
        heir = other.subscribe(["t"], group="g")  # the same version, another content
        for number in range(1, 71):
            other.append("t", b"%d" % number, b"%d" % number)
        other.flush_now()
        member.check_all()
        member._unchecked = False  # as after a wake-up
        both = [*member._take(512), *heir.poll()]
        again = [record for record in both if record.value == b"0"]  # its commit was undone, too
        assert len(both) - len(again) == 70
    bus.close()


def test_registries_are_never_stale(path: Path) -> None:
    # Readers look while topics are being created: what they remember must not be the old list.
    with contextlib.ExitStack() as stack:
        makers = [stack.enter_context(child(MAKE_TOPICS, path)) for _ in range(2)]
        for maker in makers:
            assert maker.wait(WAIT_S) == 0
    with opened(path) as bus:
        assert len(bus.topics()) == 301  # and the one that readers wait for


MAKE_TOPICS = """
import sys
from mercury.bus import open_bus
bus = open_bus("embedded:" + sys.argv[1])
consumer = bus.subscribe(["none"], group="g")
for number in range(300):
    consumer.poll()
    bus.append(f"topic.{number}", b"")
    bus.flush_now()
bus.close()
"""


# Wake-up


def test_a_burst_to_many_topics_wakes_for_all(path: Path) -> None:
    async def scenario() -> None:
        with opened(path) as bus, opened(path) as other:
            consumer = other.subscribe(["t.*"])
            reading = asyncio.create_task(consumer.read(timeout_s=WAIT_S))
            while not consumer._waiting:  # type: ignore[attr-defined]
                await iterate()
            for number in range(60):  # far more wake-ups than the socket's queue holds
                bus.append(f"t.{number}", b"%d" % number)
                bus.flush_now()
            seen = [int(record.value) for record in await reading]
            while len(seen) < 60:
                seen += [int(one.value) for one in await consumer.read(timeout_s=0.3)]
            assert sorted(seen) == list(range(60))

    asyncio.run(scenario())


# What can be wrong with the file


def refused(path: Path, error: type[BusError], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        open_bus(f"embedded:{path}")
    assert str(path.name) in str(caught.value) or str(path.parent) in str(caught.value)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "no" / "bus.db", BusUnavailableError, "folder .* does not exist")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, BusUnavailableError, "is a directory")


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"To whom it may concern: " * 1000)
    refused(path, BusCorruptError, "not a bus file")


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name)")
    refused(path, BusCorruptError, "not a Mercury bus")


def test_another_schema_version_is_refused(path: Path) -> None:
    with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET schema_version = 99")
        connection.commit()
    refused(path, BusCorruptError, "version 99")


def test_a_damaged_file_is_refused(path: Path) -> None:
    with opened(path) as bus:
        for number in range(2000):
            bus.append("t", b"%d" % number)
    damaged = bytearray(path.read_bytes())
    damaged[2048:] = os.urandom(len(damaged) - 2048)
    path.write_bytes(damaged)
    refused(path, BusCorruptError, "damaged")


def test_a_file_that_lost_its_version(path: Path) -> None:
    with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM meta")
        connection.commit()
    refused(path, BusCorruptError, "damaged")


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o600, 0o700), (0o660, 0o770)])
def test_who_may_not_use_the_bus_file_may_use_none_of_its_files(
    path: Path, mode: int, folder_mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can read the bus can forge an alert to everyone."""
    monkeypatch.setattr("mercury.bus.embedded.topic_log.SEGMENT_BYTES", 1000)
    monkeypatch.setattr("mercury.bus.embedded.topic_log.INDEX_EVERY_BYTES", 500)
    before = os.umask(0o002)
    try:
        if mode != 0o600:
            path.touch(mode)
        with opened(path) as bus:
            for _ in range(5):
                bus.append("t", bytes(800))
                bus.flush_now()
            found = list(path.parent.rglob("*"))
            modes = {one: one.stat().st_mode & 0o777 for one in found}
        assert {"bus.db-wal", "bus.db-lock", "head", "reserved"} <= {one.name for one in found}
        assert {".log", ".index"} <= {one.suffix for one in found}
        for one in found:
            assert modes[one] == (folder_mode if one.is_dir() else mode), one
    finally:
        os.umask(before)


@pytest.mark.parametrize("lost", ["head", "*.log", "reserved", "*"])
def test_what_is_appended_after_a_loss_is_read(path: Path, lost: str) -> None:
    with opened(path) as bus:
        group = bus.subscribe(["t"], group="g", start="earliest")
        for number in range(10):
            bus.append("t", b"%d" % number)
        bus.flush_now()
        assert len(group.poll()) == 10
        group.commit()
    for file in path.with_name("bus.db-records").rglob(lost):
        if file.is_file():
            file.unlink()
    with opened(path) as bus:
        consumer = bus.subscribe(["t"], start="earliest")
        group = bus.subscribe(["t"], group="g")
        kept = [int(record.value) for record in consumer.poll()]
        assert kept == ([] if "*" in lost else list(range(10)))
        bus.append("t", b"10")
        bus.flush_now()
        for one in (consumer, group):
            eventually(lambda one=one: [record.value for record in one.poll()] == [b"10"], WAIT_S)
            assert one.lag() == 0


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [
        (errno.ENOSPC, BusFullError, "no space is left"),
        (errno.EDQUOT, BusFullError, "no space is left"),
        (errno.EROFS, BusUnavailableError, "is read-only"),
        (errno.EIO, BusUnavailableError, "Input/output error"),
    ],
)
def test_what_the_disk_refuses_is_said_and_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[BusError], match: str
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(code, os.strerror(code))

    with opened(path) as bus:
        bus.append("t", b"0")
        bus.flush_now()
        with monkeypatch.context() as broken:
            broken.setattr(os, "pwrite", refuse)
            bus.append("t", b"1")
            with pytest.raises(error, match=rf"bus\.db.*{match}|{match}.*bus\.db"):
                bus.flush_now()
        bus.flush_now()
        assert values(bus, "t") == [0, 1]


def test_a_locked_file_is_refused_after_a_timeout(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercury.bus.embedded.lock.LOCK_TIMEOUT_S", 0.05)
    with opened(path):
        pass
    with path.with_name("bus.db-lock").open("rb+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1)
        with pytest.raises(BusUnavailableError, match=r"bus\.db is locked"):
            EmbeddedBus(path, retention=KEEP)


def test_a_program_that_knows_nothing_of_our_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercury.bus.embedded.catalogue.LOCK_TIMEOUT_S", 0.05)
    bus = EmbeddedBus(path, retention=KEEP)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        bus.append("t", b"1")
        with pytest.raises(BusUnavailableError, match=r"bus\.db is locked"):
            bus.flush_now()
        connection.execute("ROLLBACK")
    bus.flush_now()  # what could not be written was kept
    assert values(bus, "t") == [1]
    bus.close()


OPEN_AS_NOBODY = """
import os, sys
import mercury.bus.embedded.bus  # the interpreter itself may be closed to others
from mercury.bus import open_bus
from mercury.model.errors import BusUnavailableError
if os.getuid() == 0:
    os.setuid(65534)
try:
    open_bus("embedded:" + sys.argv[1])
except BusUnavailableError as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only(path: Path, what: str) -> None:
    folder = Path(f"/tmp/mercury-test-{os.getpid()}-{what}")  # pytest's own is closed to others
    folder.mkdir()
    try:
        with opened(folder / "bus.db"):
            pass
        folder.chmod(0o777 if what == "file" else 0o555)
        (folder / "bus.db").chmod(0o444 if what == "file" else 0o666)
        with child(OPEN_AS_NOBODY, folder / "bus.db") as process:
            assert f"the {'bus file' if what == 'file' else 'folder'} {folder}" in (
                said := line(process)
            )
            assert "read-only" in said
    finally:
        folder.chmod(0o777)
        shutil.rmtree(folder)


@contextlib.contextmanager
def full_disk(size: int = 100_000) -> Iterator[None]:
    """Let no file grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def values_now(bus: EmbeddedBus) -> list[int]:
    """Read around the bus, whose buffer cannot be flushed."""
    (topic,) = bus.refreshed().topics
    return [int(record.value) for record in bus._file.log(topic).read(0, 1000)]


def test_a_full_disk(path: Path) -> None:
    bus = EmbeddedBus(path, retention=KEEP)
    written = 0
    with full_disk():
        try:
            for number in range(1000):
                bus.append("t", b"%d" % number + b" " * 1000)
                bus.flush_now()
                written += 1
        except BusFullError as error:
            assert re.search(r"no space is left .*bus\.db", str(error))
        assert 10 < written < 100
        assert values_now(bus) == list(range(written))  # nothing is lost, nothing is half there
        with pytest.raises(BusFullError):
            bus.flush_now()
    bus.flush_now()
    assert values_now(bus) == list(range(written + 1))
    bus.close()


def test_a_flush_that_nobody_waits_for_fails_the_next_call(path: Path) -> None:
    async def scenario() -> None:
        bus = EmbeddedBus(path, retention=KEEP)
        with full_disk():
            bus.append("t", b"0" + b" " * 200_000)
            await iterate()  # the loop flushes
            with pytest.raises(BusFullError):
                bus.append("t", b"1")
            bus.append("t", b"2")
            with pytest.raises(BusFullError):
                await bus.flush()
        await bus.flush()
        assert values_now(bus) == [0, 2]
        bus.close()

    asyncio.run(scenario())


def test_a_failed_flush_is_tried_again_by_itself(path: Path) -> None:
    async def scenario() -> None:
        bus = EmbeddedBus(path, retention=KEEP)
        with full_disk():
            bus.append("t", b"0" + b" " * 200_000)
            await iterate()  # the loop flushes
        with opened(path) as other:
            consumer = other.subscribe(["t"], start="earliest")
            assert len(await consumer.read(timeout_s=WAIT_S)) == 1
        bus.close()

    asyncio.run(scenario())


def test_a_version_that_was_announced_and_undone_is_not_waited_for(path: Path) -> None:
    """Readers would look for it for ever, and never come to stop."""

    def fail() -> None:
        writer._file.change_listeners()
        raise sqlite3.OperationalError("disk I/O error")

    with opened(path) as writer, opened(path) as reader:
        consumer = reader.subscribe(["t"], start="earliest")
        version = writer._file.lock.version()
        with pytest.raises(BusUnavailableError):
            writer.write(fail)
        assert writer._file.lock.version() == version
        writer.append("t", b"1")
        writer.flush_now()
        assert [record.value for record in consumer.poll()] == [b"1"]


def test_who_closes_on_a_full_disk_is_told_what_is_lost(path: Path) -> None:
    bus = EmbeddedBus(path, retention=KEEP)
    consumer = bus.subscribe(["t"], group="g")
    with full_disk():
        bus.append("t", b" " * 200_000)
        bus.append("t", b"1")
        consumer.close()  # a part has more to do at its end
        with pytest.raises(BusFullError, match=r"no space .*bus\.db; records .* lost .*: 2$"):
            bus.close()


def test_the_buffer_is_bounded(path: Path) -> None:
    bus = EmbeddedBus(path, retention=KEEP)
    taken = 0
    megabyte = bytes(1024**2)
    with full_disk():
        for _ in range(80):
            try:
                bus.append("t", megabyte)
                taken += 1
            except BusFullError as error:
                last = error
        assert taken * len(megabyte) <= BUFFER_BYTES
        assert "bus.db" in str(last)
        with pytest.raises(BusFullError):
            bus.close()
    with pytest.raises(BusUnavailableError, match="closed"):
        bus.flush_now()


# Upkeep


def test_the_log_is_checkpointed_and_cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercury.bus.embedded.upkeep.CHECKPOINT_BYTES", 100_000)
    wal = Path(f"{path}-wal")
    with contextlib.closing(EmbeddedBus(path, retention=KEEP)) as bus:
        consumer = bus.subscribe(["t"], group="g", start="earliest")
        largest = 0
        for number in range(1000):
            bus.append("t", b"%d" % number)
            bus.flush_now()
            consumer.poll()
            consumer.commit()
            bus.flush_now()
            largest = max(largest, wal.stat().st_size)
            if number % 100 == 99:
                bus._upkeep.step(*NOW)
        assert 100_000 < largest < 2_000_000  # pages of 2 KiB for 1000 commits were written
        assert wal.stat().st_size < 100_000
        consumer.close()
        assert bus.subscribe(["t"], group="g").poll() == []


def test_files_reach_the_disk_when_they_are_finished(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercury.bus.embedded.topic_log.SEGMENT_BYTES", 10_000)
    bus = EmbeddedBus(path, retention=KEEP)
    for number in range(100):
        bus.append("t", b"%d" % number + b" " * 1000)
        bus.flush_now()
    (topic,) = bus.refreshed().topics
    log = bus._file.log(topic)
    bus._upkeep.step(*NOW)
    assert log._page.synced == log.state().segment > 1
    bus.close()


def test_upkeep_runs_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercury.bus.embedded.upkeep.INTERVAL_S", 0.01)
    stepped = threading.Event()
    monkeypatch.setattr(Upkeep, "step", lambda self, now, now_us: stepped.set())
    with opened(path):
        assert stepped.wait(WAIT_S)


def test_retention_is_enforced_now_and_then(path: Path) -> None:
    bus = EmbeddedBus(path, retention=Retention(max_age_s=0.0, max_bytes=None))
    for number in range(1000):
        bus.append("t", b"%d" % number)
    bus.flush_now()
    now = time.monotonic()
    late_us = time.time_ns() // 1000 + 1_000_000
    bus._upkeep.step(now + RETENTION_INTERVAL_S - 2.0, late_us)
    assert len(values(bus, "t")) == 1000
    bus._upkeep.step(now + RETENTION_INTERVAL_S + 1.0, late_us)
    assert values(bus, "t") == []
    bus.close()


def test_space_is_given_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercury.bus.embedded.topic_log.SEGMENT_BYTES", 100_000)
    bus = EmbeddedBus(path, retention=Retention(max_age_s=None, max_bytes=300_000))
    sizes = []
    for _ in range(6):
        for number in range(500):
            bus.append("t", b"%d" % number + b" " * 1000)
            if number % 10 == 0:
                bus.flush_now()
        bus.flush_now()
        assert bus._upkeep.enforce(NOW_US) > 0
        files = path.with_name("bus.db-records").rglob("*.log")
        sizes.append(sum(file.stat().st_size for file in files))
    assert max(sizes) < 450_000
    bus.close()


def test_replay_by_time_after_retention(path: Path) -> None:
    bus = EmbeddedBus(path, retention=Retention(max_age_s=None, max_bytes=100_000))
    for number in range(500):
        bus.append("t", b"%d" % number + b" " * 1000)
        bus.flush_now()
    everything = bus.subscribe(["t"], start="earliest").poll()
    bus._upkeep.enforce(NOW_US)
    left = bus.subscribe(["t"], start="earliest").poll()
    assert 0 < len(left) < 200
    assert bus.subscribe(["t"], start=FromTime(everything[0].timestamp_us)).poll() == left
    middle = left[len(left) // 2].timestamp_us
    replayed = bus.subscribe(["t"], start=FromTime(middle)).poll()
    assert replayed == [record for record in left if record.timestamp_us >= middle]
    bus.close()


def test_opening_fails_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Upkeep, *arguments: object) -> None:
        raise BusUnavailableError("no")

    monkeypatch.setattr(Upkeep, "__init__", fail)
    with pytest.raises(BusUnavailableError, match="no"):
        open_bus(f"embedded:{path}")
    monkeypatch.undo()
    with opened(path) as bus:  # nothing was left locked
        bus.append("t", b"1")


MANY_TOPICS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from mercury.bus import Retention, open_bus
from mercury.bus.embedded.upkeep import Upkeep

bus = open_bus("embedded:" + sys.argv[1], retention=Retention(None, None))
other = open_bus("embedded:" + sys.argv[1], retention=Retention(None, None))
all_of_them = bus.subscribe(["t.*"], start="earliest")
for turn in range(3):
    for number in range(600):
        (bus, other)[number % 2].append(f"t.{number}", b"%d" % number)
    bus.flush_now()
    other.flush_now()
    bus._upkeep.step(0.0, 0)
    found = 0
    while found < 600:
        found += len(all_of_them.poll())
    assert found == 600
print(sorted(value for record in other.subscribe(["t.7"], start="earliest").poll()
             for value in [record.value]))
"""


def test_topics_may_be_more_than_open_files(path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", MANY_TOPICS, path], capture_output=True, text=True, check=False
    )
    assert (said.stdout, said.stderr) == ("[b'7', b'7', b'7']\n", "")
