"""Fetches Java archives from Maven Central, each checked against the lock file."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from mercury.model.errors import JavaError

MAVEN_URL = "https://repo1.maven.org/maven2"
MAVEN_VARIABLE = "MERCURY_MAVEN_URL"
_AT_ONCE = 8
_TIMEOUT_S = 20.0
_ATTEMPTS = 3

# Called with the bytes fetched so far, and in all.
Progress = Callable[[int, int], None]


class Jar(NamedTuple):
    """One archive, by its path in a Maven repository."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def read_lock(path: Path) -> list[Jar]:
    """Read the archives that a lock file pins."""
    lines = (line.split() for line in path.read_text("utf-8").splitlines())
    return [Jar(line[0], int(line[1]), line[2]) for line in lines if line and line[0] != "#"]


def cache_folder(name: str) -> Path:
    """The folder of downloads, by the XDG base directories."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mercury" / name


def fetch(
    jars: Sequence[Jar],
    folder: Path,
    *,
    url: str | None = None,
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Return the archives as files of a folder, fetching those that are not there yet."""
    base = (url or os.environ.get(MAVEN_VARIABLE) or MAVEN_URL).rstrip("/")
    # A file gets its name only when it is complete and verified, so its size is enough.
    missing = [jar for jar in jars if not _is_there(folder / jar.name, jar.size)]
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JavaError(f"{folder} cannot be made: {error.strerror}") from error
        total, done = sum(jar.size for jar in missing), 0
        progress(0, total)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for size in pool.map(lambda jar: _fetch_one(jar, folder, base), missing):
                    done += size
                    progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return [folder / jar.name for jar in jars]


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _fetch_one(jar: Jar, folder: Path, base: str) -> int:
    data = _download(f"{base}/{jar.path}")
    if hashlib.sha256(data).hexdigest() != jar.sha256:
        raise JavaError(f"{base}/{jar.path} is not what the lock file expects")
    try:
        # Written aside and renamed: another process may be fetching the same.
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data)
        Path(file.name).replace(folder / jar.name)
    except OSError as error:
        raise JavaError(f"{folder / jar.name} cannot be written: {error.strerror}") from error
    return jar.size


def _download(url: str) -> bytes:
    if not url.startswith(("https://", "http://", "file://")):
        raise JavaError(f"{url} is not the address of a Maven repository")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                data: bytes = answer.read()
                return data
        except (OSError, HTTPException) as error:
            if attempt == _ATTEMPTS:
                reason = getattr(error, "reason", None) or error
                raise JavaError(
                    f"{url} cannot be fetched ({reason}); {MAVEN_VARIABLE} names another repository"
                ) from error
    raise AssertionError("unreachable")
