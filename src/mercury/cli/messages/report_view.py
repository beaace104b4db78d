"""A mediator's report for people (pMediator §8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mercury.mediator import Report
from mercury.mediator.report import TopicRow

_ID_DIGITS = 36
_WORDS = {"peer", "topic", "to", "from", "message", "time", "ended as"}  # to the left


def report_view(report: Report, clock: Callable[[float], str]) -> RenderableType:
    """The report as tables; `clock` writes the times of events."""
    parts: list[RenderableType] = [
        Text(
            f"{report.name}: {report.sent:,} sent, {report.resent:,} sent again, "
            f"{report.acknowledged:,} acknowledged; {report.received:,} received, "
            f"{report.repeated:,} repeated"
        ),
        *_table(
            "Sent to others", "peer, sent, again, again/msg, first try, heard, lost, open",
            ((one.mate, one.sent, one.resent, one.resent_per_message, _seconds(one.first_try_s),
              one.acknowledged, one.dropped, one.waiting) for one in report.mates),
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
            ((one.mate, one.received, one.acks_sent, one.acks_resent, one.resent_per_ack)
             for one in report.acks),
        ),
        *_table(
            "Most recent", "time, message, peer, ended as, after",
            ((clock(one.time_s), one.id, one.mate, one.state, _seconds(one.elapsed_s))
             for one in report.events),
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
    shown = ", ".join(topic.mates[:5])
    return shown if len(topic.mates) <= 5 else f"{shown}, …"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"
