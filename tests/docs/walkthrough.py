"""Runs what a page shows, as its reader would: in terminals, block by block.

A fence `sh` is typed into the terminal that its title names, `output` is what that terminal must
then show, and a fence whose title is a file name is written to that file. A comment
`<!-- not run: reason -->` before a fence leaves it out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WAIT_S = 40.0
# Commands that go on until they are stopped, and what they say once they are ready.
READY = {
    "mercury up": "Mercury is up",
    "mercury client": "is connected to",
    "mercury adapter": " is up",
    "python speed_watch.py": "watching",
}

_FENCE = re.compile(r"^```(\w+)(.*)$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PROMPT = re.compile(r"@@(\d+)@@ ")


@dataclass(frozen=True)
class Block:
    """A fence of a page."""

    language: str
    title: str
    text: str
    line: int
    not_run: str = ""  # why

    @property
    def file(self) -> str | None:
        """The file that it is, if it is one."""
        return self.title if "." in self.title else None


def blocks(page: str) -> list[Block]:
    """The fences of a page, in order."""
    found: list[Block] = []
    lines = (ROOT / page).read_text("utf-8").splitlines()
    reason, number = "", 0
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if said := _NOT_RUN.fullmatch(line):
            reason = said[1]
        elif begin := _FENCE.match(line):
            end = next(at for at in range(number, len(lines)) if lines[at].strip() == "```")
            title = re.search(r'title="(.*?)"', begin[2])
            text = "\n".join(lines[number:end]) + "\n"
            found.append(Block(begin[1], title[1] if title else "", text, number, reason))
            reason, number = "", end + 1
        elif line:
            reason = ""
    return found


class Terminal:
    """A shell with a terminal, as a person would use it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], columns: int) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=folder,
            env={**environment, "PS1": "@@$?@@ ", "PS2": ""},
            preexec_fn=lambda: os.login_tty(theirs),
        )
        os.close(theirs)
        self._terminal = ours
        self.raw = ""  # with colours
        self.text = ""
        self.commands: list[str] = []  # that were typed
        self._typed = 0  # what was shown when something was typed last
        self._runs_on = False  # until Ctrl-C
        self._since = 0  # where the output of the last block begins
        self._looked = 0  # up to where it was compared with the page
        self._wait_for_prompt()
        self._type("stty -echo; bind 'set enable-bracketed-paste off' 2>/dev/null\n")
        self._wait_for_prompt()

    def run(self, text: str, *, goes_on: bool) -> None:
        """Type a block; what `goes_on` is not waited for, once it is ready."""
        self._finish()
        commands = re.sub(r"\\\n\s*", " ", text).strip().splitlines()
        self._since = self._looked = len(self.text)
        for index, command in enumerate(commands):
            self._type(command + "\n")
            self.commands.append(command)
            ready = next((said for begin, said in READY.items() if command.startswith(begin)), None)
            if ready is not None and " --for " not in command:
                self._runs_on = True
                self._wait_until(lambda ready=ready: ready in self.shown, f"{ready!r}")
            elif not (goes_on and index == len(commands) - 1):
                self._wait_for_prompt(command)

    def _finish(self) -> None:
        """Wait for the last command to end; one that runs on gets a Ctrl-C."""
        if not self._at_prompt():
            if self._runs_on:
                self._type("\x03")
            self._wait_for_prompt(None)
        self._runs_on = False

    @property
    def shown(self) -> str:
        """What the last block showed so far."""
        self.read(0.0)
        return self.text[self._since :]

    def must_show(self, text: str) -> None:
        """Wait until all lines were shown, in this order."""
        for line in text.strip().splitlines():
            pattern = re.compile(_pattern(line))

            def found(pattern: re.Pattern[str] = pattern) -> bool:
                match = pattern.search(self.text, self._looked)
                if match is not None:
                    self._looked = match.end()
                return match is not None

            self._wait_until(found, f"the line {line!r}")

    def end(self) -> None:
        """Close the terminal, and with it what runs in it."""
        if self._process.poll() is None:
            if self._runs_on:
                self._finish()
            for group in self._groups():
                with contextlib.suppress(ProcessLookupError):  # it may end just now
                    os.killpg(group, signal.SIGKILL)
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def _groups(self) -> list[int]:
        """The process groups of what still runs in this terminal."""
        listed = subprocess.run(
            ["ps", "-o", "pgid=", "-s", str(self._process.pid)], capture_output=True, text=True
        )
        return sorted({int(one) for one in listed.stdout.split()} - {self._process.pid})

    def _type(self, text: str) -> None:
        self.read(0.0)
        self._typed = len(self.text)
        os.write(self._terminal, text.encode())

    def _at_prompt(self) -> bool:
        self.read(0.0)
        return PROMPT.search(self.text, self._typed) is not None

    def _wait_for_prompt(self, command: str | None = "") -> None:
        self._wait_until(self._at_prompt, f"the end of {command!r}")
        code = PROMPT.search(self.text, self._typed)
        if command is not None:
            assert code is not None
            assert code[1] == "0", f"{command} ended so:\n{self.text}"

    def _wait_until(self, condition: object, what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{what} did not come in time in:\n{self.text}"
            self.read(0.05)

    def read(self, timeout_s: float = 0.0) -> None:
        """Take in what was shown meanwhile."""
        while select.select([self._terminal], [], [], timeout_s)[0]:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # the shell has ended
                return
            self.raw += data.decode(errors="replace").replace("\r", "")
            self.text = _ESCAPES.sub("", self.raw)
            timeout_s = 0.0


def _pattern(line: str) -> str:
    """A line of a page: `…` is anything; times, ids and measured values differ from run to run."""
    pattern = re.escape(line.strip())
    pattern = re.sub(r"[0-9a-f]{8}(?:\\-[0-9a-f]{4}){3}\\-[0-9a-f]{12}", "[0-9a-f-]{36}", pattern)
    pattern = re.sub(r"\d\d:\d\d:\d\d(?:\\\.\d+)?", r"\\d\\d:\\d\\d:\\d\\d(?:\\.\\d+)?", pattern)
    pattern = re.sub(r"\d+(?:\\\.\d+)?(?=\\ (?:ms|s|m)\b)", r"[\\d.,]+", pattern)
    return pattern.replace("…", ".*").replace(r"\…", ".*")


class Walk:
    """Runs pages in a folder, with ports of its own in place of the usual ones."""

    def __init__(self, folder: Path, *, columns: int = 250, in_colour: bool = False) -> None:
        self.folder = folder
        self._columns = columns
        self.terminals: dict[str, Terminal] = {}
        udp, tcp = _free_ports()
        self._replaced = {
            "127.0.0.1:7400": f"127.0.0.1:{udp}",
            "127.0.0.1:7480": f"127.0.0.1:{tcp}",
        }
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("MERCURY_")},
            "MERCURY_ADAPTER__PORT": str(udp),
            "MERCURY_CLIENT__ADAPTER": f"udp://127.0.0.1:{udp}",
            "MERCURY_GATEWAY__PORT": str(tcp),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": str(columns),
            "LINES": "50",  # with it, rich believes the columns of a dumb terminal, too
            **({"TERM": "xterm-256color"} if in_colour else {"TERM": "dumb", "NO_COLOR": "1"}),
        }

    def run(self, page: str) -> None:
        """Do all that a page says."""
        shown = blocks(page)
        name = ""
        for block, following in zip(shown, [*shown[1:], None], strict=True):
            if block.not_run:
                continue
            text = block.text
            for usual, ours in self._replaced.items():
                text = text.replace(usual, ours)
            if block.file is not None:
                (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.file).write_text(text, "utf-8")
            elif block.language == "output":
                self.terminals[block.title or name].must_show(text)
            elif block.language == "sh":
                name = block.title or "Terminal"
                goes_on = following is not None and following.language == "output"
                self._terminal(name).run(text, goes_on=goes_on)
            elif block.language == "python":
                name = "Python"
                (self.folder / "shown.py").write_text(text, "utf-8")
                self._terminal(name).run("python shown.py\n", goes_on=False)
            else:  # configuration and the like: checked without being run
                assert block.language in ("toml", "yaml", "sql", "text", "js"), block

    def usual(self, text: str) -> str:
        """Text with the usual ports in place of ours."""
        for usual, ours in self._replaced.items():
            text = text.replace(ours, usual)
        return text

    def shown(self, name: str) -> str:
        """What the last block in a terminal showed."""
        return self.terminals[name].shown

    def _terminal(self, name: str) -> Terminal:
        if name not in self.terminals:
            self.terminals[name] = Terminal(self.folder, self.environment, self._columns)
        return self.terminals[name]

    def end(self) -> None:
        for terminal in reversed(self.terminals.values()):
            terminal.end()


@contextmanager
def walking(folder: Path, **options: Any) -> Iterator[Walk]:
    """A walk whose terminals are closed at the end."""
    walk = Walk(folder, **options)
    try:
        yield walk
    finally:
        walk.end()


def _free_ports() -> tuple[int, int]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
    ):
        udp.bind(("127.0.0.1", 0))
        tcp.bind(("127.0.0.1", 0))
        return udp.getsockname()[1], tcp.getsockname()[1]
