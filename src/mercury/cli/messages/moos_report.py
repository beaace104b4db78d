"""The bridge's report, as pMediator shows it (§8, Listing 8.3): for people, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mercury.mediator.report import AckRow, EventRow, MateRow, TopicRow
from mercury.moos import MoosGateway
from mercury.moos.settings import ANY

_SHOWN = 20  # rows of a table that people can take in
_TEXTS = ("Mate", "Var", "Dest(s)")
_MATE_COLUMNS = (
    "Mate, Msgs Sent, Msgs Re-Sent, Avg Msgs Re-Sent, Avg First Interval, Msgs Dropped, Waiting"
)


def report_json(gateway: MoosGateway) -> dict[str, Any]:
    """Everything, as plain values."""
    report = gateway.report()
    settings, mediator = report.settings, report.mediator
    uplink = gateway.uplink
    return {
        "name": settings.name,
        "uptime_s": round(gateway.time_s, 3),
        "config": {
            "resend_thresh": settings.resend_thresh_s,
            "max_tries": settings.max_tries,
            "group": settings.group,
            "named_mates": list(settings.mates),
            "mates": report.mates,
            "no_ack_vars": sorted(settings.no_ack_vars),
            "listen": str(settings.listen),
            "local": str(settings.local),
            "routes": {mate: str(where) for mate, where in sorted(settings.routes.items())},
        },
        "sent": mediator.sent,
        "resent": mediator.resent,
        "acknowledged": mediator.acknowledged,
        "received": mediator.received,
        "repeated": mediator.repeated,
        "posted": report.posted,
        "bad": report.bad,
        "dropped": report.dropped,
        "mates": [asdict(row) for row in mediator.mates],
        "variables": [asdict(row) for row in mediator.topics],
        "acks": [asdict(row) for row in mediator.acks],
        "events": [asdict(row) for row in mediator.events],
        "uplink": None
        if uplink is None
        else {"adapter": uplink.uri, "connected": uplink.connected, **uplink.counters},
    }


def report_view(gateway: MoosGateway) -> RenderableType:
    """The same for a terminal."""
    report = gateway.report()
    settings, mediator = report.settings, report.mediator
    bad = sum(report.bad.values())
    parts: list[RenderableType] = [
        Text(f"mercury moos {settings.name}   {gateway.time_s:.0f} s", style="bold"),
        _pairs(
            "Config:",
            {
                "ReSend thresh": f"{settings.resend_thresh_s:g}",
                "Max Tries": str(settings.max_tries),
                "Group": settings.group or "",
                "Named mates": ", ".join(settings.mates),
                "mates": ", ".join(report.mates) + (" ..." if ANY in settings.routes else ""),
                "No_ack_vars": ", ".join(sorted(settings.no_ack_vars)),
            },
        ),
        _pairs(
            "Stats (outgoing):",
            {
                "Out Msg Count": str(mediator.sent),
                "Ack Msg Count": str(mediator.acknowledged),
            },
        ),
        _pairs(
            "Stats (incoming):",
            {
                "Rcv Msg Count": str(mediator.received),
                "Bad Msg Count": f"{bad}{_reasons(report.bad)}",
                "Passed over": f"{sum(report.dropped.values())}{_reasons(report.dropped)}",
            },
        ),
        *_table("Outgoing stats:", _MATE_COLUMNS, list(map(_mate, mediator.mates))),
        *_table(
            "Outgoing stats: (Per Variable)",
            "Snds, ReSnds, Freq, Var, Dest(s)",
            list(map(_variable, mediator.topics)),
        ),
        *_table(
            "Incoming stats:",
            "Mate, Acks Sent, Acks Re-sent, Avg Acks Re-sent",
            list(map(_ack, mediator.acks)),
        ),
        *_events(mediator.events),
    ]
    if gateway.uplink is not None:
        state = "connected to" if gateway.uplink.connected else "seeks"
        counts = ", ".join(f"{name} {count}" for name, count in gateway.uplink.counters.items())
        parts.insert(2, Text(f"Mercury: {state} {gateway.uplink.uri}   {counts}\n"))
    return Group(*parts)


def _pairs(title: str, pairs: dict[str, str]) -> Text:
    width = max(map(len, pairs))
    lines = [f"  {name:>{width}}: {value}".rstrip() for name, value in pairs.items()]
    return Text("\n".join([title, *lines, ""]))


def _reasons(counts: dict[str, int]) -> str:
    if not counts:
        return ""
    return " (" + ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) + ")"


def _table(title: str, columns: str, rows: list[tuple[str, ...]]) -> list[RenderableType]:
    """A table of as many rows as people can take in, if it has any."""
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    for column in columns.split(", "):
        justify: Literal["left", "right"] = "left" if column in _TEXTS else "right"
        table.add_column(column, justify=justify, overflow="fold")
    for row in rows[:_SHOWN]:
        table.add_row(*map(Text, row))
    more = [Text(f"and {len(rows) - _SHOWN} more")] if len(rows) > _SHOWN else []
    return [table, *more, Text("")] if rows else []


def _mate(row: MateRow) -> tuple[str, ...]:
    first_try = "" if row.first_try_s is None else f"{row.first_try_s:.3f}"
    again = f"{row.resent_per_message:.3f}"
    counts = (str(row.dropped), str(row.waiting))
    return (row.mate, str(row.sent), str(row.resent), again, first_try, *counts)


def _variable(row: TopicRow) -> tuple[str, ...]:
    resent = f"{row.resent}{'' if row.acknowledge else '*'}"
    return (str(row.sent), resent, f"{row.per_minute:.2f}", row.topic, ", ".join(row.mates))


def _ack(row: AckRow) -> tuple[str, ...]:
    return (row.mate, str(row.acks_sent), str(row.acks_resent), f"{row.resent_per_ack:.3f}")


def _events(rows: list[EventRow]) -> list[RenderableType]:
    if not rows:
        return []
    lines = [
        f"[{row.time_s:.2f}]: {_ENDS.get(row.state, row.state)} msg id: [{row.id}] to {row.mate},"
        f" elapsed={row.elapsed_s:.3f}"
        for row in rows
    ]
    return [Text("\n".join([f"Most Recent Events ({len(rows)}):", *lines]))]


_ENDS = {"acknowledged": "Completed", "unreachable": "Gave up", "expired": "Gave up"}
