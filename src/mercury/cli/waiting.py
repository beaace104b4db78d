"""Says on stderr what is being waited for, when it takes longer than a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from mercury.cli import frame

_QUIET_S = 2.0
_TERMINAL_EVERY_S, _LOG_EVERY_S = 0.5, 10.0


@contextmanager
def waiting(title: str, progress: Callable[[], str] = str) -> Iterator[None]:
    """Show the title, `progress()` and the time: in place on a terminal, else a line at times."""
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(title, progress, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(title: str, progress: Callable[[], str], ended: threading.Event) -> None:
    begun = monotonic()
    if ended.wait(_QUIET_S):
        return

    def text() -> str:
        detail = progress()
        return f"{title}{': ' if detail else ''}{detail} ({monotonic() - begun:.0f} s)"

    if not frame.progress.is_terminal:
        frame.progress.print(text(), markup=False, soft_wrap=True)
        while not ended.wait(_LOG_EVERY_S):
            frame.progress.print(text(), markup=False, soft_wrap=True)
        return
    with frame.progress.status(text()) as status:
        while not ended.wait(_TERMINAL_EVERY_S):
            status.update(text())
