"""What is shown while something takes its time."""

from __future__ import annotations

import io

import pytest
from live import eventually
from rich.console import Console

from mercury.cli.common import command
from mercury.cli.common.spinner import steps


def test_steps_are_lines_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(command, "progress", Console(file=shown))
    with steps("bench") as say:
        say("first [of] two")
        say("second")
    assert shown.getvalue().splitlines() == ["first [of] two", "second"]


def test_steps_are_shown_in_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(command, "progress", Console(file=shown, force_terminal=True))
    with steps("bench") as say:
        say("first")
        eventually(lambda: "bench: first (" in shown.getvalue(), 30.0)
    assert shown.getvalue().endswith("\x1b[2K")  # and leaves nothing behind
