"""Whatever is wrong is one clear sentence and a non-zero exit code."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import mercury

from mercury import ServiceEndpoint


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["adapter", "--bus", "embedded:missing/x.db"], "does not exist"),
        (["adapter", "--bus", "embedded:."], "is a directory"),
        (["adapter", "--bus", "redis:x"], "starts with memory:, embedded:"),
        (["adapter", "--bus", "embedded:noise.db"], "is not a bus file"),
        (["adapter", "--coverage", "missing.json"], "cannot read adapter.coverage"),
        (["adapter", "--coverage", '{"type": "Point"}'], "adapter.coverage is no area"),
        (["send", "hi", "--everyone", "--bus", "embedded:none.db"], "there is no bus at none.db"),
        (["tail", "alerts.*", "--bus", "embedded:none.db"], "there is no bus at none.db"),
        (["report", "car-7", "--bus", "embedded:none.db"], "there is no bus at none.db"),
        (["send", "hi", "--everyone", "--bus", "memory:"], "a memory: bus is one process's own"),
        (["up", "--bus", "memory:"], "use an embedded: bus"),
        (["up", "--event", "1,2,3"], "--vehicles"),
        (["up", "--vehicles", "5", "--event", "x"], "--event x is not X,Y,R in metres"),
        (["up", "--vehicles", "5", "--event", "-1,2,3"], "--event -1,2,3 is not on the plane"),
        (["up", "--link", "wifi"], "--link and --antenna need --vehicles"),
        (["up", "--vehicles", "1", "--link", "wfi"], "there is no link named 'wfi', did you mean"),
        (["sim", "--link", "loss=30"], "loss is a share between 0 and 1, not 30"),
        (["sim", "--link", "wifi", "--antenna", "here"], "--antenna here is not X,Y in metres"),
        (["bench", "match", "--log", "none/x.jsonl"], "cannot write none/x.jsonl: No such file"),
        (["bench", "fanout", "--log", "."], "cannot write .: Is a directory"),
        (["bench", "echo", "--plot", "none/x.png"], "cannot write none/x.png: No such file"),
        (["bench", "echo", "--plot", "x.abc"], "cannot write x.abc: Format 'abc'"),
        (["send", "text"], "say to whom"),
        (["send", "", "--everyone"], "the text is empty: say what to tell"),
        (["send", "text", "--circle", "1,2"], "expected lat,lon,radius_m"),
        (["send", "text", "--circle", "100,2,50"], "latitude 100"),
        (["send", "text", "--everyone", "--heading", "90,45"], "--heading goes with"),
        (["tail", "reports", "--since", "yesterday"], "--since takes"),
        (["client", "--position", "91,2"], "latitude 91"),
        (["client", "--position", "1,2", "--adapter", "tcp://x:1"], "expected udp://HOST:PORT"),
        (["config", "--config", "missing.toml"], "missing.toml cannot be read"),
        (["config", "--config", "typo.toml"], "did you mean adapter.port?"),
        (["bus", "check", "none.db"], "the bus file none.db does not exist"),
        (["bus", "check", "noise.db"], "is not a bus file"),
        (["bus", "repair", "noise.db"], "is not a bus file"),
        (["bus", "repair", "kafka://x:9"], "is not an embedded bus"),
        (["import", "noise.db"], "say where to: --to parquet FOLDER, --bus URI"),
        (["import", "noise.db", "--to", "csv", "x"], "--to takes parquet FOLDER, not 'csv'"),
        (["import", "noise.db", "--bus", "memory:"], "ends with this command"),
        (["import", "noise.db", "--to", "parquet", "x", "--speed", "0"], "--speed takes max or"),
        (["import", "noise.db", "--to", "parquet", "x", "--time-origin", "now"], "--time-origin"),
        (["import", "noise.db", "--to", "parquet", "x"], "does not show its format"),
        (["import", "empty.csv", "--to", "parquet", "x"], "every file given is empty"),
        (["import", "a.csv", "--to", "parquet", "x", "--time-zone", "Mars/Phobos"], "no time zone"),
        (["import", "a.csv", "--to", "parquet", "x", "--time-format", "qqqq"], "nor a pattern"),
        (["import", "a.csv", "--to", "parquet", "x", "--time-format", "%d/%m/%y"], "nor a pattern"),
        (["import", "a.csv", "--to", "parquet", "x", "--rejects", "x"], "would mix with the table"),
        (["import", "a.csv", "--to", "parquet", "x", "--rejects", "x/y"], "would mix with"),
        (["import", "a.csv", "--to", "parquet", "x/y", "--rejects", "x"], "would mix with"),
        (["import", "none.csv", "--to", "parquet", "x"], "there is no file none.csv"),
        (["bench", "echo", "--rates", "fast"], "expected positive numbers"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "noise.db").write_bytes(os.urandom(4096))
    (tmp_path / "empty.csv").touch()
    (tmp_path / "a.csv").write_text("id,time,lat,lon\n1,1,45,9\n")
    (tmp_path / "typo.toml").write_text("[adapter]\nprot = 7\n")
    result = mercury(*arguments, folder=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("mercury: ")
    assert sentence in lines[0]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["adapter", "--port", "99999"], "--port"),
        (["matcher", "--gateway-port", "70000"], "--gateway-port"),
        (["report", "car-7", "--watch", "--metrics-port", "99999"], "--metrics-port"),
    ],
)
def test_a_value_out_of_range_names_the_option(
    arguments: list[str], name: str, tmp_path: Path
) -> None:
    result = mercury(*arguments, folder=tmp_path)
    assert result.returncode == 2  # as with any wrong option
    assert result.stdout == ""
    assert f"Invalid value for '{name}'" in result.stderr
    assert "65535" in result.stderr


def test_an_unknown_variable_is_named(tmp_path: Path) -> None:
    result = mercury("config", folder=tmp_path, MERCURY_ADAPTER__PRT="1")
    assert result.returncode == 1
    assert "MERCURY_ADAPTER__PORT" in result.stderr


@pytest.mark.parametrize("command", ["adapter", "up"])
def test_a_used_port_is_said(command: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        result = mercury(command, "--port", port, "--bus", "embedded:x.db", folder=tmp_path)
    assert result.returncode == 1
    [line] = result.stderr.splitlines()  # nothing was started that says it, too
    assert f"UDP port {port} on 127.0.0.1 is in use" in line


def test_a_client_without_an_adapter_gives_up_clearly(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = mercury(
        "client", "--position", "1,2", "--adapter", f"udp://127.0.0.1:{port}", folder=tmp_path
    )
    assert result.returncode == 1
    assert "no answer from the adapter" in result.stderr


def test_a_topic_that_is_not_there_is_said_and_waited_for(tmp_path: Path) -> None:
    async def fill() -> str:
        async with ServiceEndpoint(f"embedded:{tmp_path / 'x.db'}", "office") as office:
            await office.publish("fuel", {})
            return str((await office.alert((1.0, 2.0))).message.id)

    id = asyncio.run(fill())
    tail = ("tail", "--bus", "embedded:x.db", "--for", "0.2", "--since", "1m")
    assert mercury(*tail, "alerts.urgnet", "fuel", "zzz", folder=tmp_path).stderr.splitlines() == [
        "there is no topic alerts.urgnet yet, waiting for it; there is alerts.urgent",
        "there is no topic fuel yet, waiting for it; there is content.fuel",
        "there is no topic zzz yet, waiting for it; there is alerts.urgent, content.fuel",
    ]
    assert "or read alerts.*" in mercury(*tail, "*", folder=tmp_path).stderr
    found = mercury(*tail, "alerts.*", "content.fuel", folder=tmp_path)
    assert found.stderr == ""
    assert f"({id})" in found.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["config", "--toml"], ["--version"]])
def test_output_that_goes_nowhere_is_one_sentence_or_none(
    arguments: list[str], unbuffered: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "mercury", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}

    def run(stdout: int) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        return done.returncode, done.stderr

    reader, writer = os.pipe()
    os.close(reader)
    code, said = run(writer)
    os.close(writer)
    assert (code in (1, 141), said) == (True, "")
    with open("/dev/full", "wb") as full:
        assert run(full.fileno()) == (1, "mercury: No space left on device\n")
