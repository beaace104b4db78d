"""The demo as a newcomer sees it: in which order, and that what it says to try next works."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import mercury, mercury_afresh
from integration.processes import free_udp_port

from mercury.java.runtime import find_java
from mercury.model.errors import JavaError


@pytest.mark.jvm
def test_the_story_and_what_to_try_next(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    port = {"MERCURY_ADAPTER__PORT": str(free_udp_port())}
    done = mercury_afresh(
        "demo", "--vehicles", "800", "--bus", "embedded:demo/mercury.db",
        folder=tmp_path, timeout_s=240.0, MERCURY_PIPELINE__SHARE_CLASSES="false", **port,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    headlines = [
        r"Mercury is up, and 800 vehicles drive in a city of 4 × 4 km\. Spark is starting",
        r"The broker judged an emergency: the first vehicle knew after \d+\.\d ms\.",
        r"Spark is up after \d+ s\.",
        r"Spark found the collision \d+\.\d s after it happened\.",
        r"Spark found the jam \d+\.\d s after it began\.",
        r"It took \d+ s\. Ledger: \d+ messages to \d+ recipients: \d+ acknowledged",
        r"Try next:",
    ]
    shown = iter(done.stdout.splitlines())
    for headline in headlines:
        assert any(re.match(headline, line) for line in shown), (headline, done.stdout)

    why, where, up = (shlex.split(line) for line in shown if "# " not in line)
    for words in (why, where):
        assert words[:3] == [sys.executable, "-m", "mercury"]
        answer = mercury(*words[3:], folder=tmp_path)
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout
    assert " were addressed: " in mercury(*why[3:], folder=tmp_path).stdout
    with subprocess.Popen(
        up, cwd=tmp_path, env={"PATH": "", **port}, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        try:
            assert any("Mercury is up" in line for line in running.stderr)
        finally:
            running.send_signal(signal.SIGINT)
