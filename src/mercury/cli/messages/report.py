"""`mercury report`: what was sent to a client and by it, how often, and what was lost."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from rich.console import Console
from rich.live import Live

from mercury.bus import Bus, FromTime, catch_up
from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.report_view import report_view
from mercury.mediator import Report
from mercury.mediator.report import report_of
from mercury.model.errors import ConfigurationError
from mercury.model.topics import REPORTS
from mercury.service import Statistics, now_us
from mercury.service.message_trail import LedgerReader
from mercury.service.metrics import MetricsServer

_REFRESH_S = 1.0
_PIPED_WIDTH = 240

_SENT = {"sent": "messages sent the first time", "resent": "messages sent again"}
# Rows of the report, what tells them apart, how their metrics begin, and what each counts.
_COUNTERS = (
    ("peers", "peer", "", {
        **_SENT,
        "acknowledged": "messages that were acknowledged",
        "dropped": "messages that expired or were given up",
    }),
    ("topics", "topic", "topic_", _SENT),
    ("acks", "peer", "", {"acks_sent": "receipts sent", "acks_resent": "receipts sent again"}),
    ("heard", "source", "heard_", {
        "messages": "messages addressed to the client",
        "acknowledged": "of which it acknowledged",
        "refused": "of which it refused",
        "dropped": "of which expired or were given up",
    }),
)  # fmt: skip


def report(
    client: Annotated[str, typer.Argument(help="Identity of the client")],
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    since: Annotated[str, option(reading.TIME_HELP, "TIME")] = "1h",
    watch: Annotated[bool, option("Refresh it until Ctrl-C", names="--watch -w")] = False,
    metrics_port: Annotated[
        int | None, command.port("With --watch: TCP port of /metrics, 0 for a free one")
    ] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Show a client's messages to and from others: sent, repeated, acknowledged, lost."""
    if metrics_port is not None and not watch:
        raise ConfigurationError("--metrics-port goes with --watch")
    client = client.removeprefix("client:")  # as senders are named
    settings = command.settings_for(config, bus__uri=bus)
    since_us = reading.instant(since, "--since") or 0
    command.require_bus(settings)

    async def work() -> None:
        with (
            contextlib.closing(command.bus_of(settings)) as opened,
            contextlib.closing(LedgerReader(opened, since_us)) as reader,
        ):

            def current() -> Report:
                return report_of(client, reader.catch_up(), now_us())

            if watch:
                await _watch(current, metrics_port, seconds, as_json)
                return
            found = current()
            if not (found.peers or found.heard or _reported(opened, client, since_us)):
                who = "`mercury tail reports` shows who is there"
                raise ConfigurationError(f"nothing is known of {client} (--since {since}): {who}")
            if as_json:
                command.print_json(found.as_dict())
            else:
                # What is piped on is as wide as it needs to be.
                width = None if sys.stdout.isatty() else _PIPED_WIDTH
                Console(highlight=False, width=width).print(report_view(found))

    command.run(work())


def _reported(bus: Bus, client: str, since_us: int) -> bool:
    with contextlib.closing(bus.subscribe((REPORTS,), start=FromTime(since_us))) as consumer:
        return any(one.key == client.encode() for records in catch_up(consumer) for one in records)


async def _watch(
    current: Callable[[], Report], metrics_port: int | None, seconds: float | None, as_json: bool
) -> None:
    stop = command.stop_event()
    server = None
    if metrics_port is not None:
        at = ("127.0.0.1", metrics_port)
        server = MetricsServer("report", at, Statistics, lambda: _metrics(current()))
        await server.start()
        command.progress.print(f"metrics at http://127.0.0.1:{server.port}/metrics")
    live = Live(console=Console(highlight=False), auto_refresh=False)

    def show() -> None:
        if as_json:
            command.print_json(current().as_dict())
        else:
            live.update(report_view(current()), refresh=True)

    with contextlib.nullcontext() if as_json else live:
        await command.watch(stop, seconds, _REFRESH_S, show)
    if server is not None:
        await server.stop()


def _metrics(report: Report) -> Iterable[Metric]:
    """The report for Prometheus, by client and peer, topic or sender."""
    for rows, label, prefix, fields in _COUNTERS:
        for field, text in fields.items():
            name = f"mercury_report_{prefix}{field}"
            family = CounterMetricFamily(name, text, labels=["client", label])
            for row in getattr(report, rows):
                family.add_metric([report.name, getattr(row, label)], getattr(row, field))
            yield family
    first = GaugeMetricFamily(
        "mercury_report_first_try_seconds",
        "mean time to the answer where the first try was enough",
        labels=["client", "peer"],
    )
    for peer in report.peers:
        if peer.first_try_s is not None:
            first.add_metric([report.name, peer.peer], peer.first_try_s)
    yield first
