"""Brings what was appended to the disk, in a thread: all that comes meanwhile shares one sync.

What the kernel holds survives the death of every process, but not a stop of the machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

# A sync waits so long for more to come.
GATHER_S = 0.002

Synced = Callable[[OSError | None], None]


class DiskSync:
    def __init__(self) -> None:
        self._wanted = threading.Condition()  # guards what follows
        self._unsynced: set[Path] = set()
        self._waiting: list[Synced] = []
        self._failure: OSError | None = None  # of a sync, until somebody has heard of it
        self._closed = False
        self._syncing = threading.Lock()  # one sync at a time
        self._known: dict[Path, Path] = {}  # by folder: the file that is known to be listed there
        self._thread = threading.Thread(target=self._run, name="mercury-bus-sync", daemon=True)
        self._thread.start()

    def written(self, file: Path) -> None:
        """A file has grown; it is brought to the disk within moments."""
        with self._wanted:
            self._unsynced.add(file)
            self._wanted.notify()

    def when_synced(self, callback: Synced) -> None:
        """Call, in the thread, when all that was written before is on the disk, or failed to be."""
        with self._wanted:
            self._waiting.append(callback)
            self._wanted.notify()

    def sync_now(self) -> None:
        """Return when all that was written before is on the disk."""
        with self._syncing:
            with self._wanted:
                files, self._unsynced = self._unsynced, set()
            self._sync(files)
            with self._wanted:
                failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the thread once nobody waits."""
        with self._wanted:
            self._closed = True
            self._wanted.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._unsynced or self._waiting or self._closed)
                if self._closed and not (self._unsynced or self._waiting):
                    return
                self._wanted.wait_for(lambda: self._closed, GATHER_S)
            with self._syncing:
                with self._wanted:
                    files, self._unsynced = self._unsynced, set()
                    waiting, self._waiting = self._waiting, []
                self._sync(files)
                failure = self._failure
                if waiting:
                    self._failure = None
            for callback in waiting:
                callback(failure)

    def _sync(self, files: set[Path]) -> None:
        for file in files:
            try:
                sync_file(file)
                if self._known.get(file.parent) != file:
                    sync_file(file.parent)
                    sync_file(file.parent.parent)
                    self._known[file.parent] = file
            except FileNotFoundError:
                pass  # retention has removed it meanwhile
            except OSError as error:
                self._failure = error


def sync_file(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(file)
    finally:
        os.close(file)
