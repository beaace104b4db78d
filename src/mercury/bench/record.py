"""Keeps what benchmarks measured: one JSON line each, with what is needed to repeat it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from mercury import __version__
from mercury.model.errors import ConfigurationError


def commit() -> str | None:
    """The commit of the working copy this code runs from, if it is one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def appendable(path: Path) -> Path:
    """Refuse now, not after minutes of measuring, a file that cannot be written."""
    try:
        path.open("a").close()
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    return path


def append(path: Path, result: dict[str, Any], parameters: dict[str, Any]) -> None:
    entry = {
        **result,
        "parameters": parameters,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "version": __version__,
        "commit": commit(),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
