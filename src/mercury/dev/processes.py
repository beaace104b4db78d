"""Java processes that this one starts, and that must not outlive it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from mercury.model.errors import DevError

_START_S = 60.0
_STOP_S = 20.0
_PR_SET_PDEATHSIG = 1


class Component(ABC):
    """Processes with a folder for their files; the first that was started is stopped last."""

    title: str

    def __init__(self, folder: Path, *, temporary: bool) -> None:
        self.folder = folder
        self._temporary = temporary
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def start(self) -> None:
        """Start the processes and return when they serve."""

    def running(self) -> bool:
        return bool(self._processes) and all(
            process.poll() is None for process in self._processes.values()
        )

    def stop(self) -> None:
        """Let the processes finish and end; one that does not is killed."""
        while self._processes:
            stop_process(self._processes.popitem()[1], _STOP_S)

    def kill(self) -> None:
        """End the processes at once, as a crash would."""
        for process in self._processes.values():
            process.kill()
        self.stop()

    def close(self) -> None:
        """Stop, and remove temporary data."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self, name: str, command: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        with self._log(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C goes to us, who then stop it in order
                preexec_fn=_end_with_parent(),
            )

    def _await(self, ready: Callable[[], bool], waiting: Callable[[], None]) -> None:
        """Wait until it serves, or say why it does not."""
        deadline = time.monotonic() + _START_S
        while not ready():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise DevError(f"{self.title} ended at its start: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise DevError(
                    f"{self.title} did not answer within {_START_S:g} s, see {self.folder}"
                )
            waiting()
            time.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _last_words(self, name: str) -> str:
        """The last line of a log that names an error, or its last line."""
        said = self._log(name).read_text("utf-8", errors="replace")
        lines = said.strip().splitlines() or ["it said nothing"]
        wrong = [line for line in lines if "Exception" in line or "Error" in line]
        return f"{name}: {(wrong or lines)[-1]}"


def stop_process(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Let a process finish and end, or kill it."""
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM, *, other_than: int = 0) -> int:
    """A port that is free on loopback now."""
    while True:
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port != other_than:
            return port


def _end_with_parent() -> Callable[[], None] | None:
    """Have Linux end a child when this process is killed and cannot do so itself."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)  # loaded here: between fork and exec only the call is safe
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) and None
