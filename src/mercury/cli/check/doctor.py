"""`mercury doctor`: is everything in place, and is it well?"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from mercury.bus import FromTime, catch_up
from mercury.cli.common import command
from mercury.client import Client
from mercury.config import Settings
from mercury.model import topics
from mercury.model.errors import MercuryError, PacketError
from mercury.net import batch
from mercury.net.udp import grow_buffers
from mercury.service import now_us
from mercury.service.service import STATUS_INTERVAL_S
from mercury.wire import decode

Verdict = Literal["ok", "warning", "failed"]

_WANTED_BUFFER_BYTES = 4 * 1024 * 1024
_WANTED_FILES = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    name: str
    verdict: Verdict
    found: str
    hint: str = ""


def doctor(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Check the machine, the bus and the running parts; exit code 1 if something fails."""
    settings = command.settings_for(config, bus__uri=bus)
    findings, parts = command.run(_examine(settings))
    failed = any(finding.verdict == "failed" for finding in findings)
    if as_json:
        command.print_json(
            {
                "healthy": not failed,
                "findings": [
                    {
                        "name": finding.name,
                        "verdict": finding.verdict,
                        "found": finding.found,
                        "hint": finding.hint,
                    }
                    for finding in findings
                ],
                "parts": parts,
            }
        )
    else:
        _show(findings, parts)
    if failed:
        sys.exit(1)


async def _examine(settings: Settings) -> tuple[list[Finding], dict[str, dict[str, float]]]:
    findings = [_python(), _packets(), _buffers(), _files()]
    bus_finding, parts = _bus(settings)
    findings.append(bus_finding)
    findings.append(await _round_trip(settings, running=bool(parts)))
    if parts:
        findings.append(_matching(parts))
    return findings, parts


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", "ok", version)


def _packets() -> Finding:
    if batch.available:
        return Finding("packets", "ok", "recvmmsg and sendmmsg, many packets in one call")
    return Finding("packets", "warning", "one packet a call", "Linux serves far more clients")


def _buffers() -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        granted = grow_buffers(probe, _WANTED_BUFFER_BYTES)
    found = f"{granted:,} bytes for received packets"
    if granted < _WANTED_BUFFER_BYTES:
        hint = f"sysctl -w net.core.rmem_max={_WANTED_BUFFER_BYTES} lets bursts wait, not be lost"
        return Finding("UDP buffer", "warning", found, hint)
    return Finding("UDP buffer", "ok", found)


def _files() -> Finding:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _WANTED_FILES:
        hint = f"ulimit -n {_WANTED_FILES} for simulations of thousands of vehicles"
        return Finding("open files", "warning", f"{soft} allowed", hint)
    return Finding("open files", "ok", f"{soft} allowed")


def _bus(settings: Settings) -> tuple[Finding, dict[str, dict[str, float]]]:
    uri = settings.bus.uri
    if uri.startswith("embedded:") and not Path(uri.removeprefix("embedded:")).exists():
        return Finding("bus", "warning", f"{uri} does not exist yet", "mercury up makes it"), {}
    try:
        bus = command.bus_of(settings)
    except MercuryError as error:
        return Finding("bus", "failed", str(error)), {}
    parts: dict[str, dict[str, float]] = {}
    try:
        recent = FromTime(now_us() - int(2.5 * STATUS_INTERVAL_S * 1e6))
        consumer = bus.subscribe((topics.STATUS,), start=recent)
        for records in catch_up(consumer):
            for record in records:
                try:
                    values = decode(record.value).values
                except PacketError:
                    continue
                parts[record.key.decode()] = {
                    key: value for key, value in values.items() if isinstance(value, int | float)
                }
        consumer.close()
        names = bus.topics()
    except MercuryError as error:
        return Finding("bus", "failed", str(error)), parts
    finally:
        bus.close()
    return Finding("bus", "ok", f"{uri}, {len(names)} topics"), parts


async def _round_trip(settings: Settings, *, running: bool) -> Finding:
    uri = settings.client.adapter
    # A client at the South Pole: in the way of nobody's area.
    probe = Client(uri, identity=f"doctor-{now_us()}", position=(-90.0, 0.0), connect_timeout_s=1.0)
    try:
        async with probe:
            times = sorted([await probe.echo(timeout_s=2.0) for _ in range(5)])
    except MercuryError as error:
        hint = "mercury up starts all parts" if not running else "is it this adapter's address?"
        return Finding("round trip", "warning", str(error), hint)
    except (OSError, asyncio.CancelledError) as error:
        return Finding("round trip", "warning", str(error))
    return Finding("round trip", "ok", f"client → broker → client in {times[2] * 1e3:.2f} ms")


def _matching(parts: dict[str, dict[str, float]]) -> Finding:
    """What the matchers say of themselves."""
    matchers = [values for values in parts.values() if "pairs" in values]
    if not matchers:
        return Finding("matching", "warning", "no matcher has reported lately", "mercury matcher")
    publications, subscriptions, pairs = (
        int(sum(values.get(name, 0) for values in matchers))
        for name in ("publications", "subscriptions", "pairs")
    )
    found = f"{publications:,} publications, {subscriptions:,} subscriptions, {pairs:,} pairs"
    return Finding("matching", "ok", found)


def _show(findings: list[Finding], parts: dict[str, dict[str, float]]) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    marks = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]"}
    for finding in findings:
        table.add_row(marks[finding.verdict], finding.name, finding.found)
        if finding.hint:
            table.add_row("", "", f"[dim]→ {finding.hint}[/]")
    console.print(table)
    if not parts:
        console.print("\nno part of Mercury has reported lately")
        return
    console.print()
    for name, values in sorted(parts.items()):
        numbers = {key: value for key, value in values.items() if not key.startswith("dropped.")}
        console.print(
            f"[bold]{name}[/]  " + "  ".join(f"{k} {v:g}" for k, v in sorted(numbers.items()))
        )
        dropped = {key.removeprefix("dropped."): value for key, value in values.items()
                   if key.startswith("dropped.")}  # fmt: skip
        text = ", ".join(f"{reason} {count:g}" for reason, count in dropped.items())
        console.print(f"    dropped: {text or 'nothing'}")
