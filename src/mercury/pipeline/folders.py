"""Folders to write to, checked before Spark starts, and files written atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mercury.model.errors import ConfigurationError


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, or made."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from None


def check_output(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write over something that was not made to be replaced."""
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file, not a folder")
    if folder.is_dir() and not overwrite and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty: choose another, or say --overwrite")
    check_writable(folder)


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file; after a crash it has either the old content or the new."""
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
