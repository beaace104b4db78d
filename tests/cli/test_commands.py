"""The commands of a first day: up, send, tail, client, config, doctor."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import mercury
from typer.testing import CliRunner

from mercury.cli.main import COMMANDS, app, load_command


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Up:
    """A running `mercury up`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mercury.cli.main",
                "up",
                "--port",
                str(self.port),
                "--json",
                "--no-pipeline",
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert "Mercury is up" in self.process.stderr.readline()

    def stop(self) -> dict[str, object]:
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        result: dict[str, object] = json.loads(output)
        return result


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            running.process.communicate(timeout=30)


def test_an_alert_from_the_command_line_reaches_a_client(up: Up) -> None:
    client = subprocess.Popen(
        [sys.executable, "-m", "mercury.cli.main", "client", "--position", "40.76,-111.89",
         "--identity", "car-7", "--adapter", f"udp://127.0.0.1:{up.port}", "--json"],
        cwd=up.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert client.stderr is not None
        assert client.stdout is not None
        assert "car-7 is connected" in client.stderr.readline()
        outside = mercury("send", "not for you", "--circle", "41.5,-111.89,800", folder=up.folder)
        assert outside.returncode == 0
        sent = mercury(
            "send", "Road flooded", "--circle", "40.762,-111.89,800", "--json", folder=up.folder
        )
        assert sent.returncode == 0, sent.stderr
        heard = json.loads(client.stdout.readline())
        assert heard["payload"]["text"] == "Road flooded"
        assert heard["id"] == json.loads(sent.stdout)["id"]
    finally:
        client.terminate()
        client.communicate(timeout=10)

    tail = mercury("tail", "alerts.*", "--since", "5m", "--count", "2", "--json", folder=up.folder)
    texts = [json.loads(line)["message"]["payload"]["text"] for line in tail.stdout.splitlines()]
    assert texts == ["not for you", "Road flooded"]

    doctor = mercury(
        "doctor", "--json", folder=up.folder,
        MERCURY_CLIENT__ADAPTER=f"udp://127.0.0.1:{up.port}",
    )  # fmt: skip
    assert doctor.returncode == 0, doctor.stdout
    findings = {one["name"]: one["verdict"] for one in json.loads(doctor.stdout)["findings"]}
    assert findings["round trip"] == findings["bus"] == "ok"

    summary = up.stop()
    assert summary["parts"]["adapter:adapter-1"]["addressed"] == 1  # type: ignore[index]
    assert summary["restarts"] == {}


def test_a_part_that_is_killed_comes_back(up: Up) -> None:
    children = subprocess.run(
        ["pgrep", "-P", str(up.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    [broker] = [
        int(pid) for pid in children
        if b"broker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]  # fmt: skip
    os.kill(broker, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while True:
        doctor = mercury(
            "doctor", "--json", folder=up.folder,
            MERCURY_CLIENT__ADAPTER=f"udp://127.0.0.1:{up.port}",
        )  # fmt: skip
        findings = {one["name"]: one["verdict"] for one in json.loads(doctor.stdout)["findings"]}
        if findings["round trip"] == "ok":
            break
        assert time.monotonic() < deadline
    assert up.stop()["restarts"] == {"broker-1": 1}


def test_up_ends_by_itself_with_a_summary_for_people(tmp_path: Path) -> None:
    result = mercury(
        "up", "--no-pipeline", "--port", str(free_port()), "--vehicles", "600",
        "--event", "2000,2000,150", "--event-after", "1", "--for", "8",
        "--link", "perfect", folder=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "600 clients connected" in result.stdout
    assert "Alerts raised: 1 by brokers" in result.stdout
    assert "were told" in result.stdout
    assert "Nobody outside was told" in result.stdout
    assert re.search(r"The links lost none of [\d,]+ packets up and none of", result.stdout)
    assert "Dropped: nothing" in result.stdout


def test_up_says_what_the_links_of_its_vehicles_lost(tmp_path: Path) -> None:
    result = mercury(
        "up", "--no-pipeline", "--port", str(free_port()), "--vehicles", "50", "--for", "5",
        "--link", "up:loss=20%;down:range=1..2km,delay=20ms", "--antenna", "0,0", "--json",
        folder=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    link = json.loads(result.stdout)["simulation"]["link"]
    assert link["antenna_m"] == [0.0, 0.0]
    assert set(link["up"]["lost"]) == {"random"}
    assert 0.1 < link["up"]["lost"]["random"] / link["up"]["sent"] < 0.3
    assert set(link["down"]["lost"]) == {"range"}
    assert link["summary"].startswith("The links lost ")


def test_config_shows_origins_and_round_trips(tmp_path: Path) -> None:
    (tmp_path / "mercury.toml").write_text("[adapter]\nport = 7777\n")
    shown = mercury("config", "--json", folder=tmp_path, MERCURY_SIM__SEED="9")
    settings = json.loads(shown.stdout)
    port = settings["adapter.port"]
    assert (port["value"], port["origin"]) == (7777, "file")
    assert "UDP port" in port["description"]
    seed = settings["sim.seed"]
    assert (seed["value"], seed["origin"]) == (9, "environment")
    assert settings["bus.uri"]["origin"] == "default"
    assert all(one["description"] for one in settings.values())
    (tmp_path / "again.toml").write_text(mercury("config", "--toml", folder=tmp_path).stdout)
    again = mercury("config", "--config", "again.toml", "--json", folder=tmp_path)
    assert json.loads(again.stdout)["adapter.port"]["value"] == 7777


def test_config_is_complete_and_not_cut_where_it_is_piped(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 40)
    environment = {"MERCURY_PIPELINE__CHECKPOINT": str(folder)}
    settings = json.loads(mercury("config", "--json", folder=tmp_path, **environment).stdout)
    assert settings["pipeline.checkpoint"]["value"] == str(folder)
    assert settings["mediator.groups"]["value"] == {}  # empty tables are settings, too
    lines = mercury("config", folder=tmp_path, **environment).stdout.splitlines()
    for line, (name, setting) in zip(lines, settings.items(), strict=True):
        value = "none" if setting["value"] is None else str(setting["value"])
        assert line == f"{name} = {value}  ({setting['origin']})  {setting['description']}"
    toml = mercury("config", "--toml", folder=tmp_path, **environment).stdout
    assert f'checkpoint = "{folder}"' in toml


def test_doctor_fails_on_a_damaged_bus(tmp_path: Path) -> None:
    (tmp_path / "mercury.db").write_bytes(os.urandom(4096))
    result = mercury("doctor", "--json", folder=tmp_path)
    assert result.returncode == 1
    assert json.loads(result.stdout)["healthy"] is False


def test_help_and_version_import_nothing_large() -> None:
    code = (
        "import sys; from mercury.cli.main import main\n"
        "large = ('numpy', 'google', 'pydantic', 'asyncio')\n"
        "try: main()\n"
        "finally: print([name for name in large if name in sys.modules])"
    )
    for flag in ("--version", "--help"):
        done = subprocess.run(
            [sys.executable, "-c", code, flag], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_package_is_named_with_what_installs_it(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ModuleNotFoundError('no numba', name='numba')")
    done = subprocess.run(
        [sys.executable, "-m", "mercury.cli.main", "load", "--to", "null:", "--for", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 1
    assert done.stderr == "mercury: this needs numba: pip install 'mercury-messaging[server]'\n"


def test_every_command_explains_itself() -> None:
    named = [name for group in COMMANDS.values() for name in group]
    assert {"up", "why", "history", "bench"} <= set(named)
    runner = CliRunner(env={"COLUMNS": "80"})  # as when it is piped
    inner = [(name, sub) for name in named for sub in getattr(load_command(name), "commands", ())]
    for words in [(name,) for name in named] + inner:
        result = runner.invoke(app, [*words, "--help"])
        assert result.exit_code == 0, (words, result.exception)
        assert "Usage" in result.output
        cut = result.output.replace("k8s://…", "")
        assert "…" not in cut or words[0] == "bench", (words, cut)  # lists that are defaults
    shown = runner.invoke(app, ["up", "--help"]).output
    assert "kafka://HOST:PORT" in shown
    assert "--link" in shown
    assert "gtfs-realtime" in runner.invoke(app, ["import", "--help"]).output
