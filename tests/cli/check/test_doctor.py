"""`mercury doctor` with real parts that hang, die and end, and a bus that is not whole."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.commands import mercury
from live import eventually

from mercury.bus import Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.cli.check import diagnosis, facts


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Machine:
    """A folder with a bus, and parts that nobody starts again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        # Where nobody listens; at the default address somebody's own adapter may run.
        self.nowhere = {"MERCURY_CLIENT__ADAPTER": f"udp://127.0.0.1:{free_port()}"}
        self.parts: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part: str, *arguments: str) -> None:
        self.parts[part] = subprocess.Popen(
            [sys.executable, "-m", "mercury.cli.main", part, *arguments],
            cwd=self.folder,
            stderr=subprocess.DEVNULL,
        )

    def signal(self, part: str, number: signal.Signals) -> None:
        process = self.parts[part]
        process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait(20)

    def doctor(self, *arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
        result = mercury("doctor", "--json", *arguments, folder=self.folder, **environment)
        assert result.stderr == ""
        return result.returncode, json.loads(result.stdout)

    def until_healthy(self) -> dict[str, Any]:
        deadline = time.monotonic() + 30
        while True:
            code, said = self.doctor()
            if code == 0:
                return said
            assert time.monotonic() < deadline, said


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    running = Machine(tmp_path)
    yield running
    for process in running.parts.values():
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(10)


def test_parts_that_hang_die_and_are_stopped(machine: Machine) -> None:
    code, said = machine.doctor(**machine.nowhere)
    assert (code, said["cause"], said["next"]) == (1, "parts: nothing runs here", "mercury up")

    # Doctor finds the adapter by its report: its port is not the default.
    machine.start("adapter", "--port", str(machine.port))
    machine.start("broker", "--metrics-port", str(free_port(socket.SOCK_STREAM)))
    said = machine.until_healthy()
    assert said["parts"]["broker:broker-1"]["state"] == "running"
    assert said["parts"]["broker:broker-1"]["pid"] == machine.parts["broker"].pid
    assert (said["healthy"], said["cause"], said["next"]) == (True, None, None)

    # In another folder there is another bus, and the port is taken.
    (other := machine.folder / "other").mkdir()
    there = {"MERCURY_CLIENT__ADAPTER": f"udp://127.0.0.1:{machine.port}"}
    beside = json.loads(mercury("doctor", "--json", folder=other, **there).stdout)
    assert (beside["cause"], beside["next"]) == (
        "parts: nothing runs here", f"mercury up --port {machine.port + 10}",
    )  # fmt: skip
    trip = next(one for one in beside["findings"] if one["name"] == "round trip")
    assert f"process {machine.parts['adapter'].pid} (" in trip["found"]
    assert trip["found"].endswith(") is of another bus")

    machine.signal("broker", signal.SIGSTOP)
    code, said = machine.doctor()
    pid = machine.parts["broker"].pid
    assert (code, said["next"]) == (1, f"kill -CONT {pid}")
    assert said["cause"].startswith(f"broker:broker-1: hangs: process {pid}")
    trip = next(one for one in said["findings"] if one["name"] == "round trip")
    assert trip["verdict"] == "failed"
    assert "the echo does not come back: broker:broker-1 hangs" in trip["found"]

    machine.signal("broker", signal.SIGKILL)
    code, said = machine.doctor()
    assert (code, said["next"]) == (1, "mercury broker")
    assert f"broker:broker-1 died: process {pid} is gone" in said["cause"]

    machine.signal("adapter", signal.SIGTERM)
    shown = mercury("doctor", folder=machine.folder, **machine.nowhere)
    assert shown.returncode == 1
    assert "adapter:adapter-1 was stopped" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "next: mercury up"


def test_two_of_the_same_id(machine: Machine) -> None:
    machine.start("broker")
    machine.start("adapter", "--port", str(machine.port))
    machine.until_healthy()
    machine.parts["first"] = machine.parts.pop("broker")
    machine.start("broker")
    deadline = time.monotonic() + 30
    while True:
        code, said = machine.doctor()
        assert code in (0, 1)
        if code == 1 and "two parts call themselves broker:broker-1" in said["cause"]:
            break
        assert time.monotonic() < deadline, said
    assert said["next"] == f"kill {machine.parts['broker'].pid}"


def test_a_bus_with_a_flipped_byte(machine: Machine) -> None:
    machine.start("broker")
    records = machine.folder / "mercury.db-records"
    eventually(lambda: any(file.stat().st_size for file in records.rglob("*.log")))
    machine.signal("broker", signal.SIGTERM)
    segment = next(file for file in records.rglob("*.log") if file.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    code, said = machine.doctor()
    assert code == 1
    assert f"{segment.name} is damaged at byte" in said["cause"]
    assert "record " in said["cause"]
    assert said["next"].startswith("mercury bus repair ")
    bus = said["next"].split()[-1]
    assert mercury("bus", "check", bus, folder=machine.folder).returncode == 1
    repaired = mercury("bus", "repair", bus, "--json", folder=machine.folder)
    [damage] = json.loads(repaired.stdout)["repaired"]
    assert damage["end"] > damage["first"]
    assert mercury("bus", "check", bus, folder=machine.folder).returncode == 0
    assert (
        "hold no records: accepted as lost"
        in mercury("bus", "check", bus, folder=machine.folder).stdout
    )
    _, said = machine.doctor(**machine.nowhere)
    assert "nothing runs here" in said["cause"]


def test_a_damaged_bus_file_is_put_aside(machine: Machine) -> None:
    machine.start("broker")
    eventually((machine.folder / "mercury.db-records").exists)
    machine.signal("broker", signal.SIGTERM)
    (machine.folder / "mercury.db").write_bytes(os.urandom(4096))
    code, said = machine.doctor()
    assert code == 1
    assert "is damaged or is not a bus file" in said["cause"]
    move, _, start = said["next"].partition(" && ")
    assert start == "mercury up"
    subprocess.run(["sh", "-c", move], cwd=machine.folder, check=True)
    assert [file.name for file in machine.folder.glob("mercury.db*")] == []
    _, said = machine.doctor(**machine.nowhere)
    assert said["cause"] == "parts: nothing runs here"


def test_what_a_disk_with_little_left_still_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bus.db"
    EmbeddedBus(path, retention=Retention(None, None)).close()
    usage = shutil.disk_usage(tmp_path)._replace(free=604_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found, _ = facts._embedded(f"embedded:{path}", path)
    assert (found.trouble, found.free_bytes) == ("", 604_000)
    [disk] = diagnosis._disk(found)
    assert "nearly full: 0.6 MB free of" in disk.found

    # As on a full disk, the file can be made and not be written.
    full = functools.partial(open, "/dev/full", "wb")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full())
    found, _ = facts._embedded(f"embedded:{path}", path)
    assert (found.trouble, found.found) == (
        "full",
        f"no space is left to append to the bus file {path}",
    )


def test_a_memory_bus_is_nothing_to_run_on(machine: Machine) -> None:
    code, said = machine.doctor("--bus", "memory:", **machine.nowhere)
    assert (code, said["next"]) == (1, "mercury up --bus embedded:mercury.db")


def test_kafka_is_away(machine: Machine) -> None:
    pytest.importorskip("confluent_kafka")
    port = free_port(socket.SOCK_STREAM)
    begun = time.monotonic()
    code, said = machine.doctor("--bus", f"kafka://127.0.0.1:{port}")
    assert time.monotonic() - begun < 20
    assert (code, said["next"]) == (1, f"nc -vz 127.0.0.1 {port}")
    assert f"kafka://127.0.0.1:{port} cannot be reached" in said["cause"]


def test_java_is_missing(machine: Machine) -> None:
    pytest.importorskip("pyspark")
    path = os.environ["PATH"]
    without = ":".join(one for one in path.split(":") if not (Path(one) / "java").exists())
    code, said = machine.doctor(PATH=without, JAVA_HOME="")
    assert code == 1
    java = next(one for one in said["findings"] if one["name"] == "Java")
    assert java["verdict"] == "failed"
    assert "install Java" in java["hint"]


def test_output_that_is_piped_is_whole(machine: Machine) -> None:
    folder = machine.folder / ("a-long-name-" * 12)
    folder.mkdir()
    uri = f"embedded:{folder / 'mercury.db'}"
    environment = {"COLUMNS": "40", **machine.nowhere}
    shown = mercury("doctor", "--bus", uri, folder=machine.folder, **environment)
    assert f"{uri} does not exist yet" in shown.stdout
    assert f"→ mercury up --bus {uri}" in shown.stdout
