"""`mercury moos` as a process: two vehicles, their reports, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import mercury
from moos.bridges import datagram

from mercury.moos.packet import read_packet

HELLO = 'src_node=abe,dest_node=ben,var_name=SAY,string_val="a, b",string_val_quoted=true'


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a bridge; returns it and the port it listens on."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MERCURY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "mercury.cli.main", "moos", *arguments],
        cwd=folder,
        env={**clean, "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert " listens on " in line, line + process.stderr.read()
    return process, int(line.split(" and posts to ")[0].rpartition(":")[2])


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End it as Ctrl-C does."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return out, err


def test_two_vehicles_exchange_messages(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as community:
        community.bind(("127.0.0.1", 0))
        community.settimeout(20.0)
        here = f"127.0.0.1:{community.getsockname()[1]}"
        # Nobody is at this port of loopback yet: abe's route is known before ben is.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (tmp_path / "abe.moos").write_text(
            "Community = abe\nProcessConfig = pMediator\n{\n  resend_thresh = 0.2\n"
            "  max_tries = 60\n  no_ack_vars = STATUS\n}\n"
        )
        abe, abe_port = start(
            tmp_path, "--moos-file", "abe.moos", "--listen", "127.0.0.1:0", "--local", here,
            "--to", f"ben=127.0.0.1:{port}", "--json", "--every", "0.2",
        )  # fmt: skip
        community.sendto(datagram("NODE_MESSAGE_LOCAL", HELLO), ("127.0.0.1", abe_port))
        ben, _ = start(
            tmp_path, "--name", "ben", "--listen", f"127.0.0.1:{port}", "--local", here,
            "--to", f"abe=127.0.0.1:{abe_port}",
        )  # fmt: skip
        packet = read_packet(community.recv(65_536))
        assert (packet.key, packet.text, packet.community) == ("NODE_MESSAGE", HELLO, "ben")

        taken = mercury(
            "moos", "--name", "cal", "--listen", f"127.0.0.1:{port}", "--to", "abe=127.0.0.1:9",
            folder=tmp_path,
        )  # fmt: skip
        assert taken.returncode == 1
        assert f"UDP port {port} on 127.0.0.1 is in use" in taken.stderr
        assert len(taken.stderr.strip().splitlines()) == 1

        shown, _ = stop(ben)
        assert "mercury moos ben" in shown
        assert "1 received, 0 repeated" in shown
        assert "Receipts it sent" in shown
        lines = [json.loads(line) for line in stop(abe)[0].splitlines()]
    assert [line["final"] for line in lines[:-1]] == [False] * (len(lines) - 1)
    final = lines[-1]
    assert final["final"]
    assert (final["name"], final["sent"], final["acknowledged"]) == ("abe", 1, 1)
    assert final["config"]["max_tries"] == 60
    assert final["config"]["no_ack_vars"] == ["STATUS"]
    assert final["variables"][0]["topic"] == "SAY"
    assert final["events"][0]["state"] == "acknowledged"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the vehicle needs a name"),
        (["--name", "abe", "--to", "ben"], "is not MATE=HOST:PORT"),
        (["--name", "abe", "--listen", "0", "--adapter", "tcp://x:1"], "expected udp://HOST:PORT"),
        (["--name", "abe", "--to", "ben=h:1", "--max-tries", "0"], "moos.max_tries"),
        (["--moos-file", "typo.moos"], "did you mean max_tries?"),
        (["--config", "typo.toml"], "did you mean moos.max_tries?"),
        (["--name", "abe", "--to", "b=h:1", "--position", "91,0"], "latitude 91"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "typo.toml").write_text("[moos]\nmax_trys = 7\n")
    (tmp_path / "typo.moos").write_text("ProcessConfig = pMediator\n{\n max_trys = 7\n}\n")
    result = mercury("moos", *arguments, folder=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert sentence in lines[0]
