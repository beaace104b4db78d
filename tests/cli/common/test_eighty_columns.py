"""What commands show is whole words on a terminal of 80 columns, and whole lines in a file."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from docs.walkthrough import walking
from rich.console import Console

from mercury.cli.common import command
from mercury.cli.common.report_view import report_view
from mercury.config import describe, load_settings
from mercury.mediator.report import AckRow, EventRow, HeardRow, PeerRow, Report, TopicRow

ID = "01a1f43c-9885-71e9-9ce2-b8380e58b1b9"
NAME = "service:command-line"
SENTENCE = (
    f"{ID}: notice 'Road flooded, turn round at once' from {NAME} at 14:36:14.341 to "
    "everyone within 800 m of 40.76200,-111.89000, valid until 14:38:14.341."
)
REPORT = Report(
    NAME, 12_345, 678, 12_000, 3, 1, None,
    peers=[PeerRow(NAME, 12_345, 678, 0.055, 0.025, 12_000, 345, 10)],
    topics=[TopicRow("events.emergency", 12_345, 678, False, 12.5, [f"car-{n}" for n in range(9)])],
    acks=[AckRow(NAME, 3, 3, 1, 0.333)],
    heard=[HeardRow(NAME, 3, 4, 2, 0, 1, 0, 0.025)],
    events=[EventRow(43_201.0, ID, NAME, "acknowledged", 0.025)],
)  # fmt: skip


class Output(io.StringIO):
    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize("before", ["", "    "])
def test_a_line_is_broken_between_words_on_a_terminal_only(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = "/a-path" * 20  # no word is broken, to be copied
    for tty in (True, False):
        monkeypatch.setattr(sys, "stdout", out := Output(tty=tty))
        command.show(f"{before}{SENTENCE} {path}")
        lines = out.getvalue().splitlines()
        if tty:
            assert [line for line in lines if len(line) > 80] == [f"{before}  {path}"]
            assert " ".join(map(str.strip, lines)) == f"{SENTENCE} {path}"
            assert lines[0].startswith(f"{before}{ID}")
        else:
            assert lines == [f"{before}{SENTENCE} {path}"]


def test_settings_are_whole_words(tmp_path: Path) -> None:
    with walking(tmp_path, columns=80) as walk:
        walk._terminal("1").run("mercury config\n", goes_on=False)
        shown = walk.shown("1")
    assert max(map(len, shown.splitlines())) <= 80
    words = set(shown.split())
    for row in describe(load_settings(None, {})):
        assert words >= {row.name, *row.description.split()}


def test_nothing_in_a_report_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    Console(file=out, width=80).print(report_view(REPORT, "{:.3f} h".format))
    shown = out.getvalue().replace("car-4, …", "")  # there are more
    assert "…" not in shown
    assert shown.count(NAME) == 5
    words = set(shown.split())
    assert words >= {ID, "acknowledged", "43201.000", "0.025", "events.emergency", "12,345"}
    # Where there is room, a message and its peer stand in one line.
    monkeypatch.setenv("COLUMNS", "120")
    Console(file=out, width=120).print(report_view(REPORT))
    assert f"{ID}  {NAME}" in out.getvalue()
