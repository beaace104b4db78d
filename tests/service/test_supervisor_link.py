"""A part says that it is up, and ends with its supervisor, however that ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mercury.cli.common.command import fail
from mercury.service import supervisor_link
from mercury.service.logs import set_up_logs

PART = """
import os, signal, sys, time
from mercury.service import supervisor_link
supervisor_link._STOP_S = 0.3
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
supervisor_link.hold()
assert supervisor_link.VARIABLE not in os.environ
assert supervisor_link.part == "broker-1"
supervisor_link.say_ready()
time.sleep(60)
"""


@contextmanager
def part(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", PART, *arguments],
                env={**os.environ, supervisor_link.VARIABLE: f"{theirs.fileno()}:broker-1"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        with process:
            try:
                assert ours.recv(64) == supervisor_link.READY
                yield process, ours
            finally:
                process.kill()


def test_it_stops_when_the_other_end_is_closed() -> None:
    with part() as (process, ours):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        ours.close()
        assert process.wait(10) == -signal.SIGTERM


def test_one_that_does_not_stop_is_killed() -> None:
    with part("stubborn") as (process, ours):
        ours.close()
        assert process.wait(10) == -signal.SIGKILL


def test_a_process_that_a_person_started_has_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(supervisor_link.VARIABLE, raising=False)
    supervisor_link.hold()
    supervisor_link.say_ready()
    assert supervisor_link._link is None


def test_its_lines_say_whose_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor_link, "part", "broker-1")
    package = logging.getLogger("mercury")
    before = package.handlers[:], package.level, package.propagate
    try:
        set_up_logs("warning")
        logging.getLogger("mercury.x").warning("it rains")
    finally:
        package.handlers[:], package.level, package.propagate = before
    with pytest.raises(SystemExit):
        fail("no bus")
    said = capsys.readouterr().err
    assert " WARNING broker-1: it rains\n" in said
    assert "mercury broker-1: no bus\n" in said
