"""What others write reaches the terminal as text, never as a command to it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cli.commands import mercury

from mercury.bus import open_bus
from mercury.service.logs import set_up_logs

TEXT = "all\x1b[2J\x1b]0;clear\x07\r\n12:00:00 ALERT"


def test_in_messages(tmp_path: Path) -> None:
    open_bus(f"embedded:{tmp_path}/mercury.db").close()
    sent = mercury("send", TEXT, "--everyone", folder=tmp_path)
    assert sent.returncode == 0
    for command in (("tail", "alerts.*", "--since", "earliest", "--count", "1"), ("why", "--last")):
        said = mercury(*command, folder=tmp_path).stdout
        assert "\x1b" not in said
        assert "\x07" not in said
        assert "\r" not in said
    said = mercury("tail", "alerts.*", "--since", "earliest", "--count", "1", folder=tmp_path)
    assert r"all\x1b[2J\x1b]0;clear\x07\r\n12:00:00 ALERT" in said.stdout


def test_in_errors(tmp_path: Path) -> None:
    said = mercury("tail", "a\x1b[2J", folder=tmp_path).stderr
    assert "\x1b" not in said


def test_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger("mercury").handlers[:]
    try:
        set_up_logs("info")
        logging.getLogger("mercury.adapter").warning("%s is refused", "car\x1b[2J")
    finally:
        logging.getLogger("mercury").handlers[:] = before
        logging.getLogger("mercury").propagate = True
    assert r"car\x1b[2J is refused" in capsys.readouterr().err
