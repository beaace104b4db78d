"""A taken port names the process that has it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mercury.model.errors import AddressInUseError, ConfigurationError
from mercury.net import ports
from mercury.net.ports import bind_tcp, command_of, port_owner

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere it is not known who has a port"
)


@pytest.mark.parametrize(
    ("protocol", "kind"), [("UDP", socket.SOCK_DGRAM), ("TCP", socket.SOCK_STREAM)]
)
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_owner_of_a_port(
    protocol: str, kind: socket.SocketKind, family: socket.AddressFamily, host: str
) -> None:
    with socket.socket(family, kind) as taken:
        taken.bind((host, 0))
        if protocol == "TCP":
            taken.listen()
        port = taken.getsockname()[1]
        assert port_owner(protocol, port) == os.getpid()  # type: ignore[arg-type]
    assert port_owner(protocol, port) is None  # type: ignore[arg-type]


def test_a_client_of_a_port_is_not_its_owner() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert port_owner("TCP", client.getsockname()[1]) is None


def test_a_taken_tcp_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(AddressInUseError) as caught:
            bind_tcp("127.0.0.1", port, "metrics")
    assert str(caught.value).startswith(
        f"TCP port {port} on 127.0.0.1, for metrics, is in use by process {os.getpid()} ("
    )
    bind_tcp("127.0.0.1", port, "metrics").close()


def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192.0.2.1:7480, for tests: "):
        bind_tcp("192.0.2.1", 7480, "tests")


def test_a_command_reads_as_it_is_typed() -> None:
    code = "print(1, flush=True)\ninput()"
    words = [sys.executable, "-c", code, "x" * 200]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        shown = command_of(other.pid)
        assert shown.startswith(f"{sys.executable} -c print(1, flush=True) input() xxx")
        assert (len(shown), shown[-1]) == (100, "…")
        other.kill()
    assert command_of(other.pid) == "ended"


@pytest.mark.parametrize("start", ["/usr/bin/python3 -m mercury.cli.main", "python3.11 /x/mercury"])
def test_a_command_of_ours_is_short(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_text(f"{start} up --port 1".replace(" ", "\0") + "\0")
    monkeypatch.setattr(ports, "_PROC", tmp_path)
    assert command_of(7) == "mercury up --port 1"
