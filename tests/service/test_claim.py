"""One `mercury up` a bus: the claim ends with the process, and is never mistaken."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from mercury.model.errors import AlreadyRunningError, BusFullError, BusUnavailableError
from mercury.service import claim
from mercury.service.claim import Holder, claimed, holder_of

CLAIM = """
import sys
from mercury.service.claim import claimed
with claimed(sys.argv[1]) as write:
    write(["adapter", "broker-1"])
    print("claimed", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["embedded", "other"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return f"embedded:{tmp_path}/bus.db" if request.param == "embedded" else "kafka://here:9092"


def test_a_second_one_is_refused_and_names_the_first(uri: str) -> None:
    assert holder_of(uri) is None
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM, uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"claimed\n"
        assert holder_of(uri) == Holder(first.pid, ["adapter", "broker-1"])
        with pytest.raises(AlreadyRunningError) as caught, claimed(uri):
            pass
        assert caught.value.process == first.pid
        assert f"process {first.pid}" in str(caught.value)
        assert f"`mercury down --bus {uri}`" in str(caught.value)
        first.kill()
    # Its file is still there and names a number that may be anybody's by now.
    assert holder_of(uri) is None
    with claimed(uri):
        assert holder_of(uri) == Holder(os.getpid(), [])
    assert holder_of(uri) is None


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    uri = f"embedded:{tmp_path}/file/bus.db"
    with pytest.raises(BusUnavailableError, match="file/bus.db-up: Not a directory"), claimed(uri):
        pass
    assert holder_of(uri) is None


def test_another_bus_is_another_claim(tmp_path: Path) -> None:
    one, two = (f"embedded:{tmp_path}/{name}.db" for name in ("one", "two"))
    with claimed(one) as write, claimed(two):
        write(["adapter"])
        assert holder_of(one) == Holder(os.getpid(), ["adapter"])
        assert holder_of(two) == Holder(os.getpid(), [])
    assert holder_of(one) is holder_of(two) is None


def test_a_number_left_by_a_killed_one_is_nobody(tmp_path: Path) -> None:
    uri = f"embedded:{tmp_path}/bus.db"
    (tmp_path / "bus.db-up").write_text(json.dumps({"process": os.getpid(), "parts": []}))
    assert holder_of(uri) is None


def test_nothing_is_left_of_a_claim(uri: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), claimed(uri):
        raise RuntimeError("a port is in use")
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


def test_who_waited_for_a_claim_that_is_removed_has_not_got_it(tmp_path: Path) -> None:
    """Else a third would make the file anew, and there would be two."""
    uri = f"embedded:{tmp_path}/bus.db"
    other = claim._other

    def removed_before(file: IO[str], lock: int) -> Holder | None:
        monkeypatch.undo()
        (tmp_path / "bus.db-up").unlink()
        return other(file, lock)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(claim, "_other", removed_before)
        with claimed(uri):
            assert holder_of(uri) == Holder(os.getpid(), [])


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with (
        pytest.raises(BusFullError, match=r"^cannot write .*bus.db-up: No space left on device$"),
        claimed(f"embedded:{tmp_path}/bus.db"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_became_read_only_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"embedded:{tmp_path}/bus.db"

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with claimed(uri):
        monkeypatch.setattr(claim, "_write", refuse)
        monkeypatch.setattr(Path, "unlink", refuse)
    assert holder_of(uri) is None
