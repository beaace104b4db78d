"""`mercury config`: the settings in force, and where each comes from."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from rich.padding import Padding

from mercury.cli.common import command
from mercury.cli.common.command import option
from mercury.config import describe, to_toml


def config(
    config: command.ConfigOption = None,
    toml: Annotated[bool, option("Print them as a settings file", names="--toml")] = False,
    as_json: command.JsonOption = False,
) -> None:
    """Print every setting with its value and where that comes from; secrets are masked."""
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
    for row in rows:
        value = "none" if row.value is None else str(row.value)
        style = None if row.origin == "default" else "bold"
        if not console.is_terminal:  # a line each, whole
            print(f"{row.name} = {value}  ({row.origin})  {row.description}")
            continue
        console.print(f"{row.name} = {value}  ({row.origin})", style=style)
        console.print(Padding(row.description, (0, 0, 0, 4)), style="dim")
