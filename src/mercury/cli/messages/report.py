"""`mercury report`: what was sent to a client and by it, how often, and what was lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from mercury.cli.common import command, times
from mercury.cli.messages.live_ledger import LedgerReader
from mercury.cli.messages.report_view import report_view
from mercury.config import Settings
from mercury.mediator import Report
from mercury.mediator.ledger_report import report_of
from mercury.model.errors import ConfigurationError
from mercury.service import Statistics, now_us
from mercury.service.clock import clock_time
from mercury.service.metrics import MetricsServer
from mercury.service.report_metrics import report_metrics

_REFRESH_S = 1.0
_PIPED_WIDTH = 240


def report(
    client: Annotated[str, typer.Argument(help="Identity of the client")],
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    since: Annotated[str, typer.Option(help=times.TIME_HELP, metavar="TIME")] = "1h",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(help="With --watch: TCP port of /metrics; 0 takes a free one")
    ] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Show who told a client what, and it others: sent, repeated, acknowledged, lost."""
    if metrics_port is not None and not watch:
        raise ConfigurationError("--metrics-port goes with --watch")
    settings = command.settings_for(config, bus__uri=bus)
    since_us = times.instant(since, "--since") or 0
    command.run(_run(settings, client, since_us, watch, metrics_port, seconds, as_json))


async def _run(
    settings: Settings,
    client: str,
    since_us: int,
    watch: bool,
    metrics_port: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    command.require_bus(settings)
    bus = command.bus_of(settings)
    reader = LedgerReader(bus, since_us)

    def current() -> Report:
        return report_of(client, reader.catch_up(), now_us())

    try:
        if watch:
            await _watch(client, current, metrics_port, seconds, as_json)
        else:
            _show(current(), as_json)
    finally:
        reader.close()
        bus.close()


def _show(found: Report, as_json: bool) -> None:
    if as_json:
        command.print_json(found.as_dict())
    else:
        # What is piped on is as wide as it needs to be.
        width = None if sys.stdout.isatty() else _PIPED_WIDTH
        Console(highlight=False, width=width).print(report_view(found, _clock))


async def _watch(
    client: str,
    current: Callable[[], Report],
    metrics_port: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = None
    if metrics_port is not None:
        server = MetricsServer("report", Statistics, lambda: report_metrics(current()))
        await server.start("127.0.0.1", metrics_port)
        command.progress.print(f"metrics at http://127.0.0.1:{server.port}/metrics")
    console = Console(highlight=False)
    deadline = None if seconds is None else loop.time() + seconds
    with contextlib.ExitStack() as stack:
        view = None
        if not as_json:
            view = stack.enter_context(Live(console=console, auto_refresh=False))
        while not stop.is_set() and (deadline is None or loop.time() < deadline):
            if view is None:
                command.print_json(current().as_dict())
            else:
                view.update(report_view(current(), _clock), refresh=True)
            left = _REFRESH_S if deadline is None else max(0.0, deadline - loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_REFRESH_S, left)):
                    await stop.wait()
    if server is not None:
        await server.stop()


def _clock(time_s: float) -> str:
    return clock_time(int(time_s * 1e6))
