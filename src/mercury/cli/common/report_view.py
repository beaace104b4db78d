"""The report of a mediator for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mercury.mediator import Report
from mercury.mediator.report import TopicRow
from mercury.model.printable import printable_lines
from mercury.service.clock import clock_time

_NAMES = {"peer", "topic", "to", "from", "ended as"}  # which may take more than one line
_WORDS = {*_NAMES, "message and peer", "time"}  # to the left
_WIDE = 100  # columns that a message's id and its peer need to stand side by side


def _time_of_day(time_s: float) -> str:
    return clock_time(int(time_s * 1e6))


def report_view(
    report: Report, clock: Callable[[float], str] = _time_of_day, most: int | None = None
) -> Group:
    """What a mediator did, as tables of at most so many rows, as pMediator shows it (§8)."""

    def table(title: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> list[RenderableType]:
        if not rows:
            return []
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in columns.split(", "):
            justify: Literal["left", "right"] = "left" if column in _WORDS else "right"
            table.add_column(column, justify=justify, no_wrap=column not in _NAMES, overflow="fold")
        for row in rows[:most]:
            table.add_row(*map(_cell, row))
        more = len(rows) - len(rows[:most])
        return [table, *([Text(f"and {more:,} more")] if more else [])]

    apart = "  " if get_terminal_size((_WIDE, 0)).columns >= _WIDE else "\n"
    parts: list[RenderableType] = [
        Text(
            f"{report.name}: {report.sent:,} sent, {report.resent:,} sent again, "
            f"{report.acknowledged:,} acknowledged; {report.received:,} received, "
            f"{report.repeated:,} repeated"
        ),
        *table(
            "Sent to others", "peer, sent, again, again/msg, first try, heard, lost, open",
            [(one.peer, one.sent, one.resent, one.resent_per_message, _seconds(one.first_try_s),
              one.acknowledged, one.dropped, one.waiting) for one in report.peers],
        ),
        *table(
            "By topic", "topic, sent, again, per min, to",
            # pMediator marks what is not repeated because nobody answers it.
            [(one.topic, one.sent, f"{one.resent:,}{'' if one.acknowledge else '*'}",
              f"{one.per_minute:.2f}", _peers(one)) for one in report.topics],
        ),
        *table(
            "Sent to this client", "from, sent, copies, heard, mean, refused, lost, open",
            [(one.source, one.messages, one.copies, one.acknowledged, _seconds(one.mean_s),
              one.refused, one.dropped, one.waiting) for one in report.heard],
        ),
        *table(
            "Receipts it sent", "to, messages, sent, again, again/msg",
            [(one.peer, one.received, one.acks_sent, one.acks_resent, one.resent_per_ack)
             for one in report.acks],
        ),
        *table(
            "Most recent", "time, message and peer, ended as, after",
            [(clock(one.time_s), f"{one.id}{apart}{one.peer}", one.state, _seconds(one.elapsed_s))
             for one in report.events],
        ),
    ]  # fmt: skip
    if len(parts) == 1:
        parts.append(Text("Nothing was sent to it or by it in this time."))
    return Group(*parts)


def _cell(value: object) -> Text:
    if isinstance(value, float):
        return Text(f"{value:.3f}")
    return Text(f"{value:,}" if isinstance(value, int) else printable_lines(str(value)))


def _peers(topic: TopicRow) -> str:
    shown = ", ".join(topic.peers[:5])
    return shown if len(topic.peers) <= 5 else f"{shown}, …"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"
