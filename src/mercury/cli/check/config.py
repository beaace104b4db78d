"""`mercury config`: what holds, and where it comes from."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from rich.table import Table

from mercury.cli.common import command
from mercury.cli.common.command import option
from mercury.config import Setting, describe, to_toml

_UNCUT = 10_000  # columns: what is piped is not cut


def config(
    config: command.ConfigOption = None,
    toml: Annotated[bool, option("As a file to start from", names="--toml")] = False,
    as_json: command.JsonOption = False,
) -> None:
    """Show every setting with its value and origin; secrets are masked."""
    settings = command.settings_for(config)
    if toml:
        print(to_toml(settings))
        return
    rows = describe(settings)
    if as_json:
        command.print_json(
            {
                name: {"value": value, "origin": origin, "description": description}
                for name, value, origin, description in rows
            }
        )
        return
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        for row in rows:
            console.print(f"{row.name} = {_shown(row)}  ({row.origin})", style=_style(row))
            console.print(f"    {row.description}", style="dim")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "from", "what it is for"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(row.name, _shown(row), row.origin, row.description, style=_style(row))
    Console(highlight=False, markup=False, width=_UNCUT).print(table)


def _shown(row: Setting) -> str:
    return "none" if row.value is None else str(row.value)


def _style(row: Setting) -> str | None:
    return None if row.origin == "default" else "bold"
