"""`mercury up` and its parts end together, and no two run on one bus or one port by accident."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.commands import mercury
from integration.processes import free_udp_port
from live import eventually

from mercury.bus import open_bus
from mercury.model.message import Address, Attributes, Kind, Message
from mercury.net.ports import port_owner
from mercury.service.claim import holder_of
from mercury.wire import encode

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="what remains is looked for in /proc"
)

MARK = "TEST_OF_UP"  # in the environment of all that a test starts, however deep
UP_S, END_S = 60.0, 30.0


class Up:
    """A `mercury up` with a pipe for what it says."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = os.urandom(8).hex()
        self.port = free_udp_port()
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MERCURY_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mercury.cli.main", "up", "--port", str(self.port), *arguments],
            cwd=folder,
            env={**clean, MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def says(self, words: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"it ended and never said {words!r}")

    def processes(self) -> set[int]:
        """All processes that it started, and those started by these."""
        mark = f"{MARK}={self.mark}".encode()
        found = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        found.add(int(folder.name))
                except OSError:
                    continue
        return found

    def assert_nothing_remains(self) -> None:
        self.process.wait(END_S)
        eventually(lambda: not self.processes(), END_S, "processes remain")
        assert port_owner("UDP", self.port) is None


@contextmanager
def up(folder: Path, *arguments: str) -> Iterator[Up]:
    running = Up(folder, *arguments)
    try:
        yield running
    finally:
        for process in running.processes():
            os.kill(process, signal.SIGKILL)
        running.process.wait()
        assert running.process.stdout is not None
        running.process.stdout.close()


def kill(running: Up) -> None:
    running.process.kill()


def close_terminal(running: Up) -> None:
    running.process.send_signal(signal.SIGHUP)


def close_pipe(running: Up) -> None:
    assert running.process.stdout is not None
    running.process.stdout.close()


@pytest.mark.parametrize(
    ("end", "code"), [(kill, -signal.SIGKILL), (close_terminal, 0), (close_pipe, 141)]
)
def test_however_up_ends_no_process_remains(
    end: Callable[[Up], None], code: int, tmp_path: Path
) -> None:
    with up(tmp_path, "--no-pipeline", "--vehicles", "3") as running:
        running.says("the gateway is open")
        assert len(running.processes()) == 5  # itself, adapter, broker, matcher, sim
        end(running)
        running.assert_nothing_remains()
        assert running.process.returncode == code


@pytest.mark.jvm
@pytest.mark.parametrize("when", ["Mercury is up", "the pipeline is up"])
def test_nothing_of_spark_remains_after_a_kill(when: str, tmp_path: Path) -> None:
    with up(tmp_path, "--no-matcher", "--pipeline") as running:
        running.says(when)
        if when == "Mercury is up":  # Spark is in the middle of its start
            eventually(lambda: any(_is_java(process) for process in running.processes()), UP_S)
        kill(running)
        running.assert_nothing_remains()


def _is_java(process: int) -> bool:
    return b"java" in _arguments(process)[0]


def _arguments(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def test_down_ends_what_up_started_and_a_second_up_is_refused(tmp_path: Path) -> None:
    bus = f"embedded:{tmp_path / 'mercury.db'}"
    nothing = mercury("down", "--bus", bus, folder=tmp_path)
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr == f"mercury: no mercury up runs on {bus} here; --bus names another bus\n"
    with up(tmp_path, "--no-pipeline", "--bus", bus) as running:
        running.says("Mercury is up")
        pid = running.process.pid

        again = mercury("up", "--bus", bus, "--port", str(free_udp_port()), folder=tmp_path)
        assert again.returncode == 1
        assert again.stderr == (
            f"mercury: mercury up runs on {bus} already, as process {pid}: "
            f"`mercury down --bus {bus}` ends it\n"
        )
        beside = mercury(
            "up", "--no-pipeline", "--bus", "embedded:other.db", "--port", str(running.port),
            folder=tmp_path,
        )  # fmt: skip
        assert beside.returncode == 1
        assert f"UDP port {running.port} on 127.0.0.1 is in use by process " in beside.stderr
        assert "(mercury adapter --bus " in beside.stderr
        on_purpose = mercury(
            "up", "--no-pipeline", "--bus", "embedded:other.db", "--port", str(free_udp_port()),
            "--for", "1", folder=tmp_path,
        )  # fmt: skip
        assert on_purpose.returncode == 0, on_purpose.stderr

        ended = mercury("down", "--bus", bus, folder=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == (
            f"ended mercury up, process {pid}, on {bus} (broker-1, adapter, matcher)\n"
        )
        assert holder_of(bus) is None
        running.assert_nothing_remains()
        assert running.process.returncode == 0


def test_a_part_of_somebody_else_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Status records of living strangers come in, and our own adapter cannot start."""
    (tmp_path / "mercury.toml").write_text("[adapter]\ncoverage = 'missing.json'\n")
    bus = open_bus(f"embedded:{tmp_path / 'mercury.db'}")
    over = threading.Event()

    def report() -> None:
        while not over.wait(0.05):
            for source in (Address.adapter("adapter-1"), Address.broker("broker-1")):
                message = Message(
                    kind=Kind.REPORT,
                    source=source,
                    destination=Address.everyone(),
                    payload=Attributes({"sessions": 0}),
                )
                bus.append("status", encode(message), str(source).encode())
            bus.flush_now()

    reporting = threading.Thread(target=report)
    reporting.start()
    try:
        result = mercury(
            "up", "--no-pipeline", "--no-matcher", "--port", str(free_udp_port()), "--for", "8",
            folder=tmp_path,
        )  # fmt: skip
    finally:
        over.set()
        reporting.join()
        bus.close()
    assert result.returncode == 1
    assert "Mercury is up" not in result.stderr
    assert "cannot read adapter.coverage" in result.stderr


def test_a_metrics_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "mercury.toml").write_text(f"[broker]\nmetrics_port = {port}\n")
        result = mercury(
            "up", "--no-pipeline", "--port", str(free_udp_port()), folder=tmp_path
        )  # fmt: skip
    assert result.returncode == 1
    assert "Mercury is up" not in result.stderr
    sentence = f"TCP port {port} on 127.0.0.1, for metrics, is in use by process {os.getpid()} ("
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_part_that_somebody_else_ends_is_started_again(tmp_path: Path) -> None:
    with up(tmp_path, "--no-pipeline", "--no-matcher", "--for", "60") as running:
        running.says("Mercury is up")
        (adapter,) = (one for one in running.processes() if b"adapter" in _arguments(one))
        os.kill(adapter, signal.SIGTERM)
        running.says("adapter was ended by somebody else and is started again in 0.5 s")

        def serves_again() -> bool:
            others = {one for one in running.processes() if b"adapter" in _arguments(one)}
            return bool(others - {adapter}) and port_owner("UDP", running.port) is not None

        eventually(serves_again, UP_S)
        running.process.send_signal(signal.SIGINT)
        running.says("adapter ended too early and was started again once")
        running.assert_nothing_remains()
        assert running.process.returncode == 0


def test_a_damaged_bus_is_said_once_and_what_to_type(tmp_path: Path) -> None:
    bus = open_bus(f"embedded:{tmp_path / 'mercury.db'}")
    bus.append("status", b"1")
    bus.close()
    (tmp_path / "mercury.db").write_bytes(os.urandom(4096))
    result = mercury("up", "--no-pipeline", "--port", str(free_udp_port()), folder=tmp_path)
    assert result.returncode == 1
    (sentence,) = result.stderr.splitlines()
    assert "mercury.db" in sentence
    assert sentence.endswith(": `mercury doctor --bus embedded:mercury.db` says what to type")
    assert not (tmp_path / "mercury.db-up").exists()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("foo:bar", "mercury: no bus is known for 'foo:bar'; a bus URI starts with "),
        ("kafka:x", "mercury: 'kafka:x' is not a Kafka bus; it looks like kafka://HOST:PORT"),
        ("embedded:", "mercury: embedded: lacks the path of its file: embedded:PATH"),
    ],
)
def test_a_bus_that_is_none_is_all_that_is_said(uri: str, said: str, tmp_path: Path) -> None:
    result = mercury("up", "--port", str(free_udp_port()), "--bus", uri, folder=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
