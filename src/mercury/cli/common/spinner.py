"""Shows on stderr what a command waits for, when that takes longer than a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic

from rich.text import Text

from mercury.cli.common import command

_LOG_EVERY_S = 10.0
_STEPS_EVERY_S = 1.0  # drawing takes a millisecond, which a measurement may notice


@contextmanager
def waiting(
    title: str, progress: Callable[[], str] = str, *, quiet_s: float = 2.0, every_s: float = 0.5
) -> Iterator[None]:
    """Show the title, `progress()` and the time: in place on a terminal, else a line at times."""
    begun = monotonic()
    ended = threading.Event()

    def text() -> str:
        detail = progress()
        return f"{title}{': ' if detail else ''}{detail} ({monotonic() - begun:.0f} s)"

    def show() -> None:
        if ended.wait(quiet_s):
            return
        if not command.progress.is_terminal:
            command.progress.print(text())
            while not ended.wait(_LOG_EVERY_S):
                command.progress.print(text())
            return
        with command.progress.status(Text(text()), refresh_per_second=2.0 / every_s) as status:
            while not ended.wait(every_s):
                status.update(Text(text()))

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def steps(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function to call at each step: shown as `waiting` does, elsewhere a line each."""
    terminal = command.progress.is_terminal
    current = ""

    def say(text: str) -> None:
        nonlocal current
        current = text
        if not terminal:
            command.progress.print(text, markup=False)

    shown = waiting(title, lambda: current, quiet_s=0.0, every_s=_STEPS_EVERY_S)
    with shown if terminal else nullcontext():
        yield say
