"""A lock file for one `mercury up` per bus, by which `mercury down` finds it.

The process that the file names holds a lock on it. When that ends, however it ends, the lock is
free: a process that has got the same number since is never taken for it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from mercury.model.errors import AlreadyRunningError, BusFullError, BusUnavailableError

_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Holder:
    """The `mercury up` that runs on a bus."""

    process: int
    parts: Sequence[str] = ()


@contextmanager
def claimed(bus_uri: str) -> Iterator[Callable[[Sequence[str]], None]]:
    """Lock a bus for one `mercury up` on this machine, or raise AlreadyRunningError.

    Yields a function that writes the names of the parts.
    """
    path = _path(bus_uri)
    with _locked(bus_uri, path) as file:

        def write(parts: Sequence[str] = ()) -> None:
            _write(path, file.fileno(), json.dumps(asdict(Holder(os.getpid(), parts))))

        try:
            write()
            yield write
        finally:
            with suppress(OSError):  # a file without a lock has no holder
                path.unlink()


def _locked(bus_uri: str, path: Path) -> IO[str]:
    while True:
        try:
            with suppress(FileExistsError):  # if that is a file, opening says so
                path.parent.mkdir(parents=True)
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r")
        except OSError as error:
            raise BusUnavailableError(f"cannot write {path}: {error.strerror}") from None
        if (holder := _other(file, fcntl.LOCK_EX)) is not None:
            file.close()
            raise AlreadyRunningError(bus_uri, holder.process)
        if path.exists() and os.path.samefile(path, file.fileno()):
            return file
        file.close()  # its last holder has removed it meanwhile


def holder_of(bus_uri: str) -> Holder | None:
    """The `mercury up` that runs on a bus on this machine now."""
    try:
        file = _path(bus_uri).open("r")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BusUnavailableError(f"cannot read {_path(bus_uri)}: {error.strerror}") from None
    with file:
        return _other(file, fcntl.LOCK_SH)


def _path(bus_uri: str) -> Path:
    scheme, _, rest = bus_uri.partition(":")
    if scheme == "embedded":
        return Path(f"{rest}-up")
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"{tempfile.gettempdir()}/mercury-{os.getuid()}"
    return Path(folder) / f"mercury-up-{hashlib.sha256(bus_uri.encode()).hexdigest()[:16]}"


def _other(file: IO[str], lock: int) -> Holder | None:
    """The holder of the file; None if it is locked by this process now."""
    seen: Holder | None = None
    while True:
        try:
            fcntl.flock(file, lock | fcntl.LOCK_NB)
            return None  # any content is of a process that was killed
        except BlockingIOError:
            pass
        # Read until it is the same twice: a process that has just locked it may not have written
        # yet, and one that only looks never writes.
        last, seen = seen, _read(file)
        if seen is not None and seen == last:
            return seen
        time.sleep(_WAIT_S)


def _read(file: IO[str]) -> Holder | None:
    file.seek(0)
    try:
        return Holder(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None


def _write(path: Path, descriptor: int, text: str) -> None:
    """Overwrite in place, which also works on a full disk."""
    try:
        os.truncate(descriptor, os.pwrite(descriptor, text.encode(), 0))
    except OSError as error:
        sentence = f"cannot write {path}: {error.strerror}"
        kind = BusFullError if error.errno == errno.ENOSPC else BusUnavailableError
        raise kind(sentence) from None
