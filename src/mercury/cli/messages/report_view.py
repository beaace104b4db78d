"""A mediator's report for people (pMediator §8)."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mercury.mediator import Report
from mercury.mediator.report import TopicRow


def report_view(report: Report, clock: Callable[[float], str]) -> RenderableType:
    """The report as tables; `clock` writes the times of events."""
    parts: list[RenderableType] = [
        Text(
            f"{report.name}: {report.sent:,} sent, {report.resent:,} sent again, "
            f"{report.acknowledged:,} acknowledged; {report.received:,} received, "
            f"{report.repeated:,} repeated"
        )
    ]
    if report.mates:
        table = _table("To its mates", "mate", "sent", "again", "again/msg", "first try", "heard",
                       "lost", "open")  # fmt: skip
        for mate in report.mates:
            table.add_row(
                mate.mate,
                f"{mate.sent:,}",
                f"{mate.resent:,}",
                f"{mate.resent_per_message:.3f}",
                _seconds(mate.first_try_s),
                f"{mate.acknowledged:,}",
                f"{mate.dropped:,}",
                f"{mate.waiting:,}",
            )
        parts.append(table)
    if report.topics:
        table = _table("By topic", "topic", "sent", "again", "per min", "to")
        for topic in report.topics:
            table.add_row(
                topic.topic,
                f"{topic.sent:,}",
                # pMediator marks what is not repeated because nobody answers it.
                f"{topic.resent:,}{'' if topic.acknowledge else '*'}",
                f"{topic.per_minute:.2f}",
                _mates(topic),
            )
        parts.append(table)
    if report.heard:
        table = _table("To this client", "from", "sent", "copies", "heard", "mean", "refused",
                       "lost", "open")  # fmt: skip
        for row in report.heard:
            table.add_row(
                row.source,
                f"{row.messages:,}",
                f"{row.copies:,}",
                f"{row.acknowledged:,}",
                _seconds(row.mean_s),
                f"{row.refused:,}",
                f"{row.dropped:,}",
                f"{row.waiting:,}",
            )
        parts.append(table)
    if report.acks:
        table = _table("Receipts it sent", "to", "messages", "sent", "again", "again/msg")
        for ack in report.acks:
            table.add_row(
                ack.mate,
                f"{ack.received:,}",
                f"{ack.acks_sent:,}",
                f"{ack.acks_resent:,}",
                f"{ack.resent_per_ack:.3f}",
            )
        parts.append(table)
    if report.events:
        table = _table("Most recent", "time", "message", "mate", "ended as", "after")
        for event in report.events:
            table.add_row(
                clock(event.time_s),
                _short(event.id),
                event.mate,
                event.state,
                _seconds(event.elapsed_s),
            )
        parts.append(table)
    if len(parts) == 1:
        parts.append(Text("Nothing was sent to it or by it in this time."))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    words = {"mate", "topic", "to", "from", "message", "time", "ended as"}
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right", no_wrap=True)
    return table


def _mates(topic: TopicRow) -> str:
    shown = ", ".join(topic.mates[:5])
    return shown if len(topic.mates) <= 5 else f"{shown}, …"


def _short(id: str) -> str:
    """As many digits of an id as `mercury why` needs."""
    return f"{id[:8]}-{id[8:12]}-{id[12:16]}" if len(id) == 32 else id


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"
