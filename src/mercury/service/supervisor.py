"""Runs the parts of one machine as processes, and keeps them running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from mercury.service import supervisor_link

log = logging.getLogger(__name__)

_STOP_S = 15.0
_FIRST_RESTART_S = 0.5
_LONGEST_RESTART_S = 10.0
_HEALTHY_S = 30.0  # after running for longer, a part restarts with the shortest wait


@dataclass(slots=True)
class Part:
    """A process of the `mercury` command."""

    name: str
    arguments: Sequence[str]
    restart: bool = True
    keep_output: bool = False  # collect what it writes to stdout
    output: list[bytes] = field(default_factory=list)
    restarts: int = 0
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # it has reported that it serves


class Supervisor:
    """Starts parts, restarts those that end without being stopped, stops all in order.

    Parts end with this process, also when it is killed (see `supervisor_link`).

    A part that ends with code 1 before it has served has logged why (a used port, a bad setting):
    a restart would not help, so everything stops.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.parts: list[Part] = []
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._environment = {**os.environ, **(environment or {})}
        self._tasks: list[tuple[Part, asyncio.Task[None]]] = []
        self._stopping = False

    async def start(self, part: Part) -> None:
        """Start a part and keep it running."""
        self.parts.append(part)
        ours = await self._launch(part)
        self._tasks.append((part, asyncio.create_task(self._watch(part, ours))))

    async def stop(self) -> None:
        """Stop all parts, the last started first, and wait for them."""
        self._stopping = True
        for part, task in reversed(self._tasks):
            _signal(part, signal.SIGTERM)
            done, _ = await asyncio.wait([task], timeout=_STOP_S)
            if not done:
                log.warning("%s did not stop in %g s and is killed", part.name, _STOP_S)
                _signal(part, signal.SIGKILL)
                await task

    async def _launch(self, part: Part) -> socket.socket:
        """Start a part's process; returns our end of the link, to be kept while it runs."""
        ours, theirs = socket.socketpair()
        with theirs:
            link = f"{theirs.fileno()}:{part.name}"
            part.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "mercury.cli.main",
                *part.arguments,
                env={**self._environment, supervisor_link.VARIABLE: link},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if part.keep_output else None,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the supervisor, which stops them in order
            )
        ours.setblocking(False)
        return ours

    async def _watch(self, part: Part, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        wait_s = _FIRST_RESTART_S
        while True:
            assert part.process is not None
            begun = loop.time()
            listening = asyncio.create_task(_await_ready(part, ours))
            with ours:
                output, _ = await part.process.communicate()
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            if output:
                part.output.append(output)
            code = part.process.returncode
            if self._stopping or (code == 0 and not part.restart):
                return
            if (code == 1 and not part.ready.is_set()) or not part.restart:
                if not self.failed.done():
                    self.failed.set_result(f"{part.name} ended with code {code}")
                return
            if loop.time() - begun > _HEALTHY_S:
                wait_s = _FIRST_RESTART_S
            part.restarts += 1
            how = f"crashed ({code})" if code else "was ended by somebody else"
            log.error("%s %s and is started again in %g s", part.name, how, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_RESTART_S)
            if self._stopping:
                return
            ours = await self._launch(part)
            if self._stopping:  # meanwhile
                _signal(part, signal.SIGTERM)


async def _await_ready(part: Part, ours: socket.socket) -> None:
    if supervisor_link.READY in await asyncio.get_running_loop().sock_recv(ours, 64):
        part.ready.set()


def _signal(part: Part, number: signal.Signals) -> None:
    process = part.process
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
