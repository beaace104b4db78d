"""TCP ports, and which process has one: known on Linux, of those that this user may look at."""

from __future__ import annotations

import errno
import os
import re
import socket
from pathlib import Path
from typing import Literal

from mercury.model.errors import AddressInUseError, ConfigurationError

Protocol = Literal["UDP", "TCP"]

_PROC = Path("/proc")
_LISTENS = {"UDP": "07", "TCP": "0A"}  # states, as the kernel writes them
_LONGEST = 100  # characters of a command line
_OURS = re.compile(r"^\S*python\S* (-m mercury(\.cli\.main)?|\S*/mercury) ")


def bind_tcp(host: str, port: int, purpose: str) -> socket.socket:
    """A TCP socket that is to listen; a taken port or a foreign address is a clear error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound("TCP", sock, host, port, purpose)


def bound(
    protocol: Protocol, sock: socket.socket, host: str, port: int, purpose: str = ""
) -> socket.socket:
    """Bind a socket that is not to block, or close it and say why it cannot be bound."""
    try:
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise address_in_use(protocol, host, port, purpose) from None
        what = f", for {purpose}" if purpose else ""
        raise ConfigurationError(
            f"cannot listen on {host}:{port}{what}: {error.strerror}"
        ) from None
    return sock


def address_in_use(
    protocol: Protocol, host: str, port: int, purpose: str = ""
) -> AddressInUseError:
    """The error of a taken port; names its process, if that is visible."""
    owner = port_owner(protocol, port)
    by = "" if owner is None else f" by process {owner} ({command_of(owner)})"
    what = f", for {purpose}," if purpose else ""
    return AddressInUseError(f"{protocol} port {port} on {host}{what} is in use{by}")


def port_owner(protocol: Protocol, port: int) -> int | None:
    """The process that listens on a port of this machine."""
    links = {f"socket:[{inode}]" for inode in _inodes(protocol, port)}
    if not links:
        return None
    for process in _PROC.iterdir():
        if process.name.isdigit():
            try:
                if any(os.readlink(file) in links for file in (process / "fd").iterdir()):
                    return int(process.name)
            except OSError:  # it has ended, or belongs to another user
                continue
    return None


def command_of(process: int) -> str:
    """The command line of a process, as a person would type it."""
    try:
        words = (_PROC / str(process) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "ended"
    text = _OURS.sub("mercury ", " ".join(" ".join(words).split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _inodes(protocol: Protocol, port: int) -> set[str]:
    found = set()
    for name in (protocol.lower(), f"{protocol.lower()}6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, *rest in map(str.split, lines):
            if int(local.rpartition(":")[2], 16) == port and state == _LISTENS[protocol]:
                found.add(rest[5])
    return found
