"""Atomic changes of a folder, at whatever moment the process dies.

A change is first written to a journal, by one rename; from then on it is completed, by this process
or by the next one that opens the folder. Every step can be repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from mercury.model.errors import PipelineError
from mercury.pipeline.folders import write_whole

# Up to this offset and time, the records of a bus partition are stored.
Offsets = dict[str, tuple[int, int]]

Result = TypeVar("Result")

_JOURNAL = "_journal.json"
_OFFSETS = "_offsets.json"
_TRIES = 3


@dataclass(frozen=True)
class Change:
    """A change of the folder; paths are relative to it."""

    moves: list[tuple[str, str]] = field(default_factory=list)  # a staged file, its place
    swaps: list[tuple[str, str]] = field(default_factory=list)  # a staged folder, what it replaces
    offsets: Offsets | None = None


class Journal:
    """The changes of one folder, one at a time; call it only while the folder is at rest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def commit(self, change: Change) -> None:
        """Apply a change completely."""
        write_whole(self._folder / _JOURNAL, json.dumps(asdict(change)).encode())
        self._do(change)

    def recover(self) -> None:
        """Complete a change that a dead process began."""
        path = self._folder / _JOURNAL
        if path.exists():
            self._do(Change(**json.loads(path.read_text())))

    def offsets(self) -> Offsets:
        """Up to which offset each partition of the bus is stored."""
        try:
            found = json.loads((self._folder / _OFFSETS).read_text())
        except FileNotFoundError:
            return {}
        return {name: (offset, time_us) for name, (offset, time_us) in found.items()}

    def _do(self, change: Change) -> None:
        for staged, place in change.moves:
            source, target = self._folder / staged, self._folder / place
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(source, target)
        for staged, place in change.swaps:
            source, target = self._folder / staged, self._folder / place
            if source.exists():
                # A reader sees all rows once, or none for the moment between two renames.
                if target.exists():
                    os.rename(target, source.with_name(f"{source.name}.old"))
                os.rename(source, target)
        if change.offsets is not None:
            stored = json.dumps({**self.offsets(), **change.offsets})
            write_whole(self._folder / _OFFSETS, stored.encode())
        os.unlink(self._folder / _JOURNAL)


@contextmanager
def locked(folder: Path, name: str, *, refusal: str = "") -> Iterator[None]:
    """Hold a lock of the folder; with `refusal`, raise instead of waiting."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"_{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            raise PipelineError(refusal) from None
        yield


def with_retry(ask: Callable[[], Result]) -> Result:
    """Retry if compaction replaced files meanwhile: their rows are in others by then."""
    for _ in range(_TRIES - 1):
        try:
            return ask()
        except Exception as error:
            if not isinstance(error, FileNotFoundError) and "FILE_NOT_EXIST" not in str(error):
                raise
    return ask()
