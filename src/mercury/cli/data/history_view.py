"""Rows of stored tables, for people and for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from mercury.cli.common import command


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Positions to a centimetre, the rest to what was measured."""
    return {
        name: round(value, 7 if name in ("lat", "lon") else 2)
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }


def show(result: dict[str, Any], rows: list[dict[str, Any]], as_json: bool, none: str) -> None:
    if as_json:
        command.print_json(result)
        return
    if not rows:
        print(none)
        return
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        number = isinstance(value, int | float)
        table.add_column(name, justify="right" if number else "left", no_wrap=name == "time")
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in row.items()))
    Console(highlight=False, markup=False).print(table)


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "time":
        return str(value)[:23].replace("T", " ")  # UTC, to the millisecond
    return f"{value:,}" if isinstance(value, int) else str(value)
