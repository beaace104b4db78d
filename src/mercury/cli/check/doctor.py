"""`mercury doctor`: checks the machine, the bus and the running parts."""

from __future__ import annotations

import resource
import socket
import sys
from dataclasses import asdict

import typer

from mercury.cli.check.diagnosis import Finding, PartState, age_text, diagnose, part_states
from mercury.cli.check.facts import gather
from mercury.cli.common import command
from mercury.net import batch
from mercury.net.udp import grow_buffers
from mercury.service import now_us

_WANTED_BUFFER_BYTES = 4 * 1024 * 1024
_WANTED_FILES = 4096
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def doctor(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Check the machine, the bus and the running parts; exit code 1 if something fails."""
    settings = command.settings_for(config, bus__uri=bus)
    options = f" --config {config}" if config is not None else ""
    if settings.bus.uri.startswith("memory:"):  # the bus of one process: nothing can run on it
        bus = "embedded:mercury.db"
    options += f" --bus {bus}" if bus is not None else ""
    facts = command.run(gather(settings, options))
    now = now_us()
    findings = [*diagnose(facts, now), *_machine()]
    parts = part_states(facts, now)
    cause = next((one for one in findings if one.verdict == "failed"), None)
    if as_json:
        command.print_json(
            {
                "healthy": cause is None,
                "cause": None if cause is None else f"{cause.name}: {cause.found}",
                "next": None if cause is None else cause.hint,
                "findings": [asdict(finding) for finding in findings],
                "parts": {one.report.address: _as_dict(one) for one in parts},
            }
        )
    else:
        _show(findings, parts, cause)
    if cause is not None:
        sys.exit(1)


def _machine() -> list[Finding]:
    return [
        Finding("Python", "ok", ".".join(map(str, sys.version_info[:3]))),
        _packets(),
        _buffers(),
        _files(),
    ]


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


def _as_dict(part: PartState) -> dict[str, object]:
    report = asdict(part.report)
    return {"state": part.state, "age_s": round(part.age_s, 1), "meaning": part.meaning} | {
        name: value for name, value in report.items() if name not in ("address", "state")
    }


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _show(findings: list[Finding], parts: list[PartState], cause: Finding | None) -> None:
    """Print one line per finding, uncut."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.verdict]
        mark = typer.style(mark, fg=colour) if sys.stdout.isatty() else mark
        command.show(f"{finding.name:<{width}}  {finding.found}", mark)
        if finding.hint:
            command.show(f"  {'':<{width}}  → {finding.hint}")
    if parts:
        typer.echo()
    for part in parts:
        report = part.report
        where = f"process {report.pid} on {report.host}, {age_text(part.age_s)} ago"
        typer.echo(f"{typer.style(report.address, bold=True)}  {part.state}  ({where})")
        dropped = {
            name.removeprefix("dropped."): value
            for name, value in report.numbers.items()
            if name.startswith("dropped.")
        }
        numbers = {k: v for k, v in report.numbers.items() if v and not k.startswith("dropped.")}
        text = "  ".join(f"{k} {_digits(v)}" for k, v in sorted(numbers.items()))
        command.show(f"    {text or '-'}")
        text = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())
        command.show(f"    dropped: {text or 'nothing'}")
    typer.echo()
    if cause is None:
        typer.echo("healthy")
    else:
        command.show(f"not healthy: {cause.name}: {cause.found}")
        if cause.hint:
            command.show(f"next: {cause.hint}")
