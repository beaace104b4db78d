"""Two network namespaces joined by a bad wire, for processes that must not share a loopback.

The wire is a veth pair with `tc netem` where the kernel has it, else a pair of TUN devices with a
thread that runs our own link between them. It needs root, `ip`, and `tc` for netem.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from net.tun_wire import TunWire

from mercury.net import LinkPair, LinkSettings, link_from

Wire = Literal["netem", "tun"]

_numbers = itertools.count(1)


class NamespacesUnavailableError(Exception):
    """This machine does not allow it; the text says why."""


@dataclass(slots=True)
class Namespace:
    """A network of its own: only what runs in it has this address."""

    name: str
    device: str
    address: str
    _running: list[subprocess.Popen[Any]] = field(default_factory=list)

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a process in it; it is killed when the namespace goes away."""
        process = subprocess.Popen(["ip", "netns", "exec", self.name, *arguments], **options)
        self._running.append(process)
        return process

    def end_processes(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Joined(NamedTuple):
    """Two namespaces and what joins them."""

    left: Namespace
    right: Namespace
    wire: Wire


@contextmanager
def joined_namespaces(
    *, loss: float = 0.0, delay_s: float = 0.0, wire: Wire | None = None, seed: int = 1
) -> Iterator[Joined]:
    """Two namespaces; what either sends is lost by this share and takes so long.

    `wire` insists on one kind. NamespacesUnavailableError says why where the machine does not allow
    it. Only the losses of a TUN wire follow the seed.
    """
    wire = usable_wire(wire)
    number = next(_numbers)
    left, right = (
        Namespace(f"mercury-{os.getpid()}-{number}{end}", f"m{os.getpid()}-{number}{end}", address)
        for end, address in (("a", "192.0.2.1"), ("b", "192.0.2.2"))
    )
    with ExitStack() as undo:
        for end in (left, right):
            # Noted before it is made: a failure halfway leaves nothing behind.
            undo.callback(_remove, end.name)
            _do("ip", "netns", "add", end.name)
        undo.callback(left.end_processes)
        undo.callback(right.end_processes)
        tun = None
        if wire == "tun":
            settings = LinkSettings(loss=loss, delay_s=delay_s)
            tun = TunWire(
                (left.device, right.device), link_from(LinkPair(settings, settings), seed)
            )
            undo.callback(tun.close)
        else:
            # Made where one end belongs, and so gone with it, whatever fails afterwards.
            peer = ("type", "veth", "peer", "name", right.device, "netns", right.name)
            _do("ip", "-n", left.name, "link", "add", "name", left.device, *peer)
        for end in (left, right):
            if tun is not None:
                _do("ip", "link", "set", end.device, "netns", end.name)
            else:
                shape = ("loss", f"{100 * loss:g}%", "delay", f"{1e3 * delay_s:g}ms")
                _do("tc", "-n", end.name, "qdisc", "add", "dev", end.device, "root",
                    "netem", *shape, "limit", "100000")  # fmt: skip
            _do("ip", "-n", end.name, "address", "add", f"{end.address}/24", "dev", end.device)
            _do("ip", "-n", end.name, "link", "set", "lo", "up")
            _do("ip", "-n", end.name, "link", "set", end.device, "up")
        if tun is not None:
            tun.start()
        yield Joined(left, right, wire)


def usable_wire(wanted: Wire | None = None) -> Wire:
    """The wire that this machine allows, netem before tun; says why if there is none."""
    if wanted is not None:
        reason = why_not(wanted)
        if reason is not None:
            raise NamespacesUnavailableError(reason)
        return wanted
    reasons = {wire: why_not(wire) for wire in ("netem", "tun")}
    for wire, reason in reasons.items():
        if reason is None:
            return wire
    raise NamespacesUnavailableError("; ".join(f"{wire}: {why}" for wire, why in reasons.items()))


@functools.cache
def why_not(wire: Wire) -> str | None:
    """Why this machine does not allow such a wire, None if it does; it is tried out once."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc") if wire == "netem" else ("ip",):
        if shutil.which(tool) is None:
            return f"there is no {tool} command"
    if wire == "tun" and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    name = f"mercury-{os.getpid()}-try"
    try:
        _do("ip", "netns", "add", name)
        if wire == "tun":
            devices = (f"m{os.getpid()}-try-a", f"m{os.getpid()}-try-b")
            TunWire(devices, link_from("perfect", 1)).close()
        if wire == "netem":
            pair = ("name", "m-try-a", "type", "veth", "peer", "name", "m-try-b")
            _do("ip", "-n", name, "link", "add", *pair)
            _do("tc", "-n", name, "qdisc", "add", "dev", "m-try-a", "root", "netem", "loss", "1%")
    except (NamespacesUnavailableError, OSError) as error:
        return str(error)
    finally:
        _remove(name)
    return None


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sentence = done.stderr.strip().replace("\n", " ")
        raise NamespacesUnavailableError(f"{' '.join(command)}: {sentence}")


def _remove(name: str) -> None:
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
