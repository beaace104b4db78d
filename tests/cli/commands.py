"""Runs the command line as a person would: as a process."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path


@functools.cache
def _forker() -> subprocess.Popen[str]:
    """It ends with this process: its input does."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("forked_commands.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def mercury(
    *arguments: str, folder: Path, timeout_s: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; nothing of the caller's configuration reaches it."""
    forker = _forker()
    assert forker.stdin is not None
    assert forker.stdout is not None
    with tempfile.TemporaryDirectory() as outputs:
        stdout, stderr = Path(outputs, "stdout"), Path(outputs, "stderr")
        request = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": _clean(environment),
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        print(json.dumps(request), file=forker.stdin, flush=True)
        pid = int(forker.stdout.readline())
        too_long = threading.Timer(timeout_s, os.kill, (pid, signal.SIGKILL))
        too_long.start()
        code = int(forker.stdout.readline())
        too_long.cancel()
        said = stdout.read_text("utf-8"), stderr.read_text("utf-8")
        if code == -signal.SIGKILL:
            raise subprocess.TimeoutExpired(arguments, timeout_s, *said)
        return subprocess.CompletedProcess(arguments, code, *said)


def mercury_afresh(
    *arguments: str, folder: Path, timeout_s: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same in an interpreter of its own, for what depends on how that was started."""
    return subprocess.run(
        [sys.executable, "-m", "mercury", *arguments],
        cwd=folder,
        env=_clean(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _clean(environment: dict[str, str]) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MERCURY_")}
    return {**clean, "COLUMNS": "120", **environment}
