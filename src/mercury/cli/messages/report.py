"""`mercury report`: what was sent to a client and by it, how often, and what was lost."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import typer
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mercury.bus import Bus, FromTime, catch_up
from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.mediator import Report
from mercury.mediator.report import TopicRow, report_of
from mercury.model.errors import ConfigurationError
from mercury.model.topics import REPORTS
from mercury.service import Statistics, now_us
from mercury.service.clock import clock_time
from mercury.service.message_trail import LedgerReader
from mercury.service.metrics import MetricsServer

_REFRESH_S = 1.0
_PIPED_WIDTH = 240
_ID_DIGITS = 36
_WORDS = {"peer", "topic", "to", "from", "message", "time", "ended as"}  # to the left

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
    watch: Annotated[bool, option("Keep showing it", names="--watch -w")] = False,
    metrics_port: Annotated[
        int | None, command.port("With --watch: TCP port of /metrics; 0 takes a free one")
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
                Console(highlight=False, width=width).print(_view(found))

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
            live.update(_view(current()), refresh=True)

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


def _view(report: Report) -> RenderableType:
    """The report as tables, as pMediator shows it (§8)."""
    parts: list[RenderableType] = [
        Text(
            f"{report.name}: {report.sent:,} sent, {report.resent:,} sent again, "
            f"{report.acknowledged:,} acknowledged; {report.received:,} received, "
            f"{report.repeated:,} repeated"
        ),
        *_table(
            "Sent to others", "peer, sent, again, again/msg, first try, heard, lost, open",
            ((one.peer, one.sent, one.resent, one.resent_per_message, _seconds(one.first_try_s),
              one.acknowledged, one.dropped, one.waiting) for one in report.peers),
        ),
        *_table(
            "By topic", "topic, sent, again, per min, to",
            # pMediator marks what is not repeated because nobody answers it.
            ((one.topic, one.sent, f"{one.resent:,}{'' if one.acknowledge else '*'}",
              f"{one.per_minute:.2f}", _peers(one)) for one in report.topics),
        ),
        *_table(
            "Sent to this client", "from, sent, copies, heard, mean, refused, lost, open",
            ((one.source, one.messages, one.copies, one.acknowledged, _seconds(one.mean_s),
              one.refused, one.dropped, one.waiting) for one in report.heard),
        ),
        *_table(
            "Receipts it sent", "to, messages, sent, again, again/msg",
            ((one.peer, one.received, one.acks_sent, one.acks_resent, one.resent_per_ack)
             for one in report.acks),
        ),
        *_table(
            "Most recent", "time, message, peer, ended as, after",
            ((clock_time(int(one.time_s * 1e6)), one.id, one.peer, one.state,
              _seconds(one.elapsed_s)) for one in report.events),
        ),
    ]  # fmt: skip
    if len(parts) == 1:
        parts.append(Text("Nothing was sent to it or by it in this time."))
    return Group(*parts)


def _table(title: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> list[Table]:
    """A table, if it has rows."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns.split(", "):
        justify: Literal["left", "right"] = "left" if column in _WORDS else "right"
        width = _ID_DIGITS if column == "message" else None  # an id that is cut is of no use
        table.add_column(column, justify=justify, no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*map(_cell, row))
    return [table] if table.row_count else []


def _cell(value: object) -> Text:
    if isinstance(value, float):
        return Text(f"{value:.3f}")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def _peers(topic: TopicRow) -> str:
    shown = ", ".join(topic.peers[:5])
    return shown if len(topic.peers) <= 5 else f"{shown}, …"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"
