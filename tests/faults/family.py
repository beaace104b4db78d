"""What a process has started, and whether it outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live import eventually


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait until something holds, and return it."""
    return eventually(condition, seconds, what)


class Family:
    """A process and all that it and its children have started, told from later ones by age."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun: dict[int, str] = {}

    def look(self) -> None:
        """Take note of who has come."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (found := _stat(int(entry.name))):
                parents[int(entry.name)] = found
        known = {self._pid, *self._begun}
        while new := {pid for pid, (parent, _) in parents.items() if parent in known} - known:
            known |= new
            self._begun |= {pid: parents[pid][1] for pid in new}

    def command(self, part: str) -> int | None:
        """The process whose command contains this."""
        for pid in self.living():
            try:
                if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
            except OSError:
                continue
        return None

    def living(self) -> list[int]:
        """Children and children's children that run."""
        return [
            pid for pid, begun in self._begun.items() if (stat := _stat(pid)) and stat[1] == begun
        ]

    def end(self) -> None:
        """Kill who is left."""
        for pid in self.living():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _stat(pid: int) -> tuple[int, str] | None:
    """The parent and the start of a process that runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), fields[19])
