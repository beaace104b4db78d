"""An embedded bus is looked at without being written: what is wrong with it is found."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mercury.bus import open_bus
from mercury.bus.embedded import inspection
from mercury.bus.embedded.inspection import inspect_bus, repair_bus
from mercury.model.errors import BusCorruptError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "bus.db")


def filled(path: Path) -> Path:
    bus = open_bus(f"embedded:{path}")
    for number in range(100):
        bus.append("status", b"%d" % number, b"key")
        bus.append("reports", b"x" * 1000)
        bus.flush_now()
    bus.close()
    return path


def test_an_undamaged_bus_has_no_problem(path: Path) -> None:
    before = sorted(file.stat().st_mtime_ns for file in path.parent.rglob("*.log"))
    found = inspect_bus(path, "status")
    assert found.problem is None
    assert found.topics == 2
    assert [int(record.value) for record in found.tail] == list(range(100))
    assert found.size_bytes == found.checked_bytes > 100_000
    assert found.newest_us >= found.tail[-1].timestamp_us
    assert sorted(file.stat().st_mtime_ns for file in path.parent.rglob("*.log")) == before


@pytest.mark.parametrize("topic", ["1", "2"])
def test_a_flipped_byte_is_found(path: Path, topic: str) -> None:
    (segment,) = (Path(f"{path}-records") / topic).glob("*.log")
    with segment.open("rb+") as file:
        file.seek(segment.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    found = inspect_bus(path, "status")
    assert found.problem is None
    (damage,) = found.damage
    assert f"{segment} is damaged at byte" in damage.found
    assert damage.gap is not None
    assert damage.gap.end - damage.gap.first == 1
    assert len(found.tail) == (99 if topic == "1" else 100)
    assert repair_bus(path) == [damage]
    (explained,) = inspect_bus(path).damage
    assert explained.explanation == "accepted"


def test_a_segment_that_was_cut(path: Path) -> None:
    (segment,) = (Path(f"{path}-records") / "2").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 10)
    (damage,) = inspect_bus(path).damage
    assert damage.found.startswith(f"reports: the bus file {segment} is damaged at byte")
    assert "record 100 cannot be read, sent after" in damage.found
    segment.unlink()
    (damage,) = inspect_bus(path).damage
    assert "lacks a file or the end of one: records 1 to 100 cannot be read" in damage.found


def test_a_lost_page_and_a_lost_folder(path: Path) -> None:
    records = Path(f"{path}-records")
    (records / "2" / "head").write_bytes(b"\0" * 4096)
    found = inspect_bus(path)
    assert "head is damaged; it is made anew" in found.damage[0].found
    assert found.checked_bytes > 100_000
    shutil.rmtree(records / "1")
    found = inspect_bus(path)
    assert [one.topic for one in found.damage] == ["status", "reports"]
    assert "is missing: the records of status are lost" in found.damage[0].found
    assert repair_bus(path) == found.damage
    found = inspect_bus(path)
    assert found.problem is None
    assert [one.explanation for one in found.damage] == ["skipped"]  # behind the hundred


def test_what_is_no_bus(path: Path) -> None:
    path.write_bytes(os.urandom(4096))
    assert isinstance(inspect_bus(path, "status").problem, BusCorruptError)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE a (b)")
    other.close()
    assert "not a Mercury bus" in str(inspect_bus(path, "status").problem)


def test_only_the_end_is_read_of_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = open_bus(f"embedded:{path}")
    for number in range(100, 4000):
        bus.append("status", b"%d" % number + b" " * 200, b"key")
        bus.flush_now()
    bus.close()
    monkeypatch.setattr(inspection, "TAIL_BYTES", 100_000)
    numbers = [int(record.value) for record in inspect_bus(path, "status").tail]
    assert numbers == list(range(4000 - len(numbers), 4000))
    assert 100_000 / 250 < len(numbers) < 170_000 / 250  # to the next entry of the index


INSPECT_AS_NOBODY = """
import os, sys
from pathlib import Path
from mercury.bus.embedded.inspection import inspect_bus  # the interpreter may be closed to others
if os.getuid() == 0:
    os.setuid(65534)
found = inspect_bus(Path(sys.argv[1]), "status")
print(len(found.tail), found.problem)
"""


@pytest.mark.parametrize("closed", ["folder", "records"])
def test_a_read_only_bus_is_still_read(closed: str) -> None:
    folder = Path(f"/tmp/mercury-inspection-{os.getpid()}-{closed}")  # pytest's is closed to others
    folder.mkdir()
    try:
        path = filled(folder / "bus.db")
        for one in (folder, *folder.rglob("*")):
            read_only = closed == "folder" or "-records" in str(one)
            mode = 0o444 if read_only else 0o666
            one.chmod(mode | 0o111 if one.is_dir() else mode)
        if closed == "records":
            folder.chmod(0o777)
        said = subprocess.run(
            [sys.executable, "-c", INSPECT_AS_NOBODY, path],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert said.startswith("100 ")
        assert "read-only" in said
    finally:
        for one in (folder, *folder.rglob("*")):
            one.chmod(0o777)
        shutil.rmtree(folder)
