"""Services as real processes, ended by their own id whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from live import until

READY_S = 30.0
END_S = 10.0


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Process:
    """One `mercury` command and what it writes to stderr."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / f"{arguments[0]}-{os.urandom(4).hex()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mercury.cli.main", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    async def ready(self) -> None:
        """Wait until it says that it is up."""

        def is_up() -> bool:
            log = self.log
            assert " is up" in log or self.process.poll() is None, log
            return " is up" in log

        await until(is_up, READY_S)

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until it has ended, and return the exit code."""
        return await asyncio.to_thread(self.process.wait, END_S)


class Starter:
    """Starts commands in a folder of their own, on one bus."""

    def __init__(self, folder: Path, bus: str | None) -> None:
        self._folder = folder
        self.bus = bus or f"embedded:{folder / 'bus.db'}"
        self._started: list[Process] = []

    def __call__(self, command: str, *arguments: str) -> Process:
        process = Process(self._folder, command, "--bus", self.bus, *arguments)
        self._started.append(process)
        return process

    def end_all(self) -> None:
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
            started.process.wait()


@contextmanager
def starting(folder: Path, bus: str | None = None) -> Iterator[Starter]:
    """A starter whose processes do not outlive the test; its bus is an embedded one by default."""
    starter = Starter(folder, bus)
    try:
        yield starter
    finally:
        starter.end_all()
