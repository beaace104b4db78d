"""`mercury config`: what holds, and where it comes from."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mercury.cli.common import command
from mercury.config import describe, to_toml


def config(
    config: command.ConfigOption = None,
    toml: Annotated[bool, typer.Option("--toml", help="As a file to start from")] = False,
    as_json: command.JsonOption = False,
) -> None:
    """Show every setting with its value and origin; secrets are masked."""
    settings = command.settings_for(config)
    if toml:
        print(to_toml(settings))
        return
    rows = describe(settings)
    if as_json:
        command.print_json({row.name: {"value": row.value, "origin": row.origin} for row in rows})
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "from", "what it is for"):
        table.add_column(heading, no_wrap=heading in ("setting", "from"))
    for row in rows:
        style = None if row.origin == "default" else "bold"
        value = "none" if row.value is None else str(row.value)
        table.add_row(row.name, value, row.origin, row.description, style=style)
    Console(highlight=False, markup=False).print(table)
