"""A lock between processes that hands over within microseconds, and a number under it.

The number lies in memory that all processes share, the lock file's first bytes. It is the
version of the topics and listeners, so that nobody has to ask the database before each append
or read whether they changed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from mercury.model.errors import BusUnavailableError

LOCK_TIMEOUT_S = 2.0
# A commit takes tens of microseconds: try that long without sleeping, because SQLite's own
# busy handler, and any sleep, would add a multiple of it.
SPIN_S = 150e-6
FIRST_SLEEP_S = 20e-6
LONGEST_SLEEP_S = 1e-3


# Locks of a range that belong to the open file and not to the process: Linux has them.
_BY_RANGE = hasattr(fcntl, "F_OFD_SETLK") and struct.calcsize("P") == 8


@lru_cache
def _request(kind: int, part: int) -> bytes:
    # struct flock: type, whence, start, length, process
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, part, 1, 0)


def open_shared(path: Path, flags: int, *, like: Path) -> int:
    """Open or make a file that the same people may use as another file or folder."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, like.stat().st_mode & 0o666)


def _allocate(fd: int) -> None:
    """Give the file its page; on a full disk that fails here, not when the page is written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, mmap.PAGESIZE)
    else:
        os.ftruncate(fd, mmap.PAGESIZE)


class WriteLock:
    """Serialises the writers of each part of a bus; the kernel releases what a dead holder had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = open_shared(Path(f"{path}-lock"), os.O_RDWR, like=path)
        try:
            if os.fstat(self._fd).st_size < mmap.PAGESIZE:
                _allocate(self._fd)
            self._memory = mmap.mmap(self._fd, mmap.PAGESIZE)
        except OSError:
            os.close(self._fd)
            raise
        self._words = memoryview(self._memory).cast("Q")

    def acquire(self, part: int = 0) -> None:
        """Take the lock of one part, or raise BusUnavailableError when others keep it too long."""
        if self._try(part):
            return
        begun = time.monotonic()
        sleep_s = FIRST_SLEEP_S
        while True:
            waited = time.monotonic() - begun
            if waited < SPIN_S:
                os.sched_yield()
            elif waited < LOCK_TIMEOUT_S:
                time.sleep(sleep_s)
                sleep_s = min(2 * sleep_s, LONGEST_SLEEP_S)
            else:
                raise BusUnavailableError(
                    f"the bus file {self._path} is locked: another process has been writing to it "
                    f"for more than {LOCK_TIMEOUT_S:g} s"
                )
            if self._try(part):
                return

    @contextmanager
    def held(self, part: int = 0) -> Iterator[None]:
        """Hold the lock of one part; `acquire` and `release` are quicker."""
        self.acquire(part)
        try:
            yield
        finally:
            self.release(part)

    def version(self) -> int:
        """The newest version of topics and listeners that was announced."""
        return self._words[0]

    def announce(self, version: int) -> None:
        """Announce a version. The holder does so before its commit.

        So whoever finds the number unchanged after a read knows that the read saw no newer
        version. If the commit then fails, the others look into the tables once more than needed.
        """
        self._words[0] = version

    def release(self, part: int = 0) -> None:
        if _BY_RANGE:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, part))
        else:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _try(self, part: int) -> bool:
        try:
            if _BY_RANGE:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK, part))
            else:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._words.release()
        self._memory.close()
        os.close(self._fd)
