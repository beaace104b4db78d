"""The status records of parts on the bus: writing and reading them."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mercury.bus import Record
from mercury.model import topics
from mercury.model.errors import PacketError
from mercury.model.message import Address, Attributes, Kind, Message, Priority
from mercury.wire import decode

State = Literal["starting", "running", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One report of one instance of a part."""

    part: str
    state: State
    pid: int
    process: str  # a unique name of the process, over all machines
    host: str
    instance: str
    started_us: int
    interval_s: float  # until the next report
    behind_s: float = 0.0
    stall_s: float = 0.0
    problem: str = ""  # one sentence; with "stopped", why it stopped by itself
    listens: str = ""  # where clients reach it
    metrics_port: int = 0
    # Not of the payload: where it stood, and the statistics beside it.
    address: str = ""
    at_us: int = 0  # by the clock of the bus
    sent_us: int = 0  # by the clock of the part
    numbers: dict[str, float] = field(default_factory=dict)

    def message(self, source: Address) -> Message:
        said: dict[str, Any] = {name: getattr(self, name) for name in _SAID}
        return Message(
            kind=Kind.REPORT,
            source=source,
            destination=Address.everyone(),
            topic=topics.STATUS,
            priority=Priority.BACKGROUND,
            payload=Attributes({**{k: round(v, 3) for k, v in self.numbers.items()}, **said}),
        )


_BESIDE = {"address", "at_us", "sent_us", "numbers"}
_SAID = [name for name in Status.__dataclass_fields__ if name not in _BESIDE]


def read_status(record: Record) -> Status | None:
    """The report in a record; None if it cannot be read."""
    try:
        message = decode(record.value)
        values = dict(message.values)
        said: dict[str, Any] = {name: values.pop(name) for name in _SAID}
    except (PacketError, KeyError):
        return None
    return Status(
        **said,
        address=record.key.decode("utf-8", "replace"),
        at_us=record.timestamp_us,
        sent_us=message.sent_us,
        numbers={k: v for k, v in values.items() if isinstance(v, int | float)},
    )


@cache
def _here() -> str:
    """The scope of process ids: this machine since its boot, this namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process_name(pid: int) -> tuple[str, str]:
    """A process's unique name, and its state from the kernel ("T": stopped)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return f"{_here()}/{pid}/{fields[19]}", fields[0]  # a later process has another start time


def process_state(status: Status) -> Literal["there", "stopped", "gone", "unknown"]:
    """Whether the process of a report still runs, as far as it is visible from here."""
    here = _here()
    if not here or not status.process.startswith(f"{here}/"):
        restarted = status.host == socket.gethostname() and status.process[:36] != here[:36]
        return "gone" if here and status.process and restarted else "unknown"
    name, state = process_name(status.pid)
    if name != status.process or state in ("Z", "X"):
        return "gone"
    return "stopped" if state in ("T", "t") else "there"


def new_identity(now_us: int) -> dict[str, Any]:
    """The identity that all reports of one instance share."""
    pid = os.getpid()
    return {
        "pid": pid,
        "process": process_name(pid)[0],
        "host": socket.gethostname(),
        "instance": secrets.token_hex(4),
        "started_us": now_us,
    }
