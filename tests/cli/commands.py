"""Runs the command line as a person would: as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def mercury(
    *arguments: str, folder: Path, timeout_s: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; nothing of the caller's configuration reaches it."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MERCURY_")}
    return subprocess.run(
        [sys.executable, "-m", "mercury.cli.main", *arguments],
        cwd=folder,
        env={**clean, **environment, "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
