"""`mercury bus`: check and repair the files of an embedded bus."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mercury.bus.embedded.inspection import Damage, inspect_bus, repair_bus
from mercury.cli.common import command
from mercury.model.errors import BusUnavailableError, ConfigurationError

app = typer.Typer(help="Check and repair the files of an embedded bus.", no_args_is_help=True)

_KNOWN = {
    "accepted": "accepted as lost",
    "skipped": "left out after a stop of the machine, so that none is given twice",
}

PathArgument = Annotated[
    str | None, typer.Argument(metavar="FILE", help="The bus file; default that of the settings")
]


@app.command()
def check(
    file: PathArgument = None,
    config: command.ConfigOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Read every record; say what cannot be read. Changes nothing; exit code 1 if damaged."""
    path = _path(file, config)
    found = inspect_bus(path, checked_bytes=sys.maxsize)
    if found.problem is not None:
        raise found.problem
    damaged = [one for one in found.damage if one.explanation is None]
    if as_json:
        command.print_json(
            {
                "file": str(path),
                "topics": found.topics,
                "checked_bytes": found.checked_bytes,
                "damage": [_described(one) for one in found.damage],
            }
        )
    else:
        _print(found.damage)
        records = f"{path}: {found.topics} topics, {found.checked_bytes / 1e6:,.1f} MB read"
        print(f"{records}; {len(damaged) or 'no'} damage{'s' if len(damaged) > 1 else ''}")
        if damaged:
            print(f"next: mercury bus repair {path}")
    raise typer.Exit(bool(damaged))


@app.command()
def repair(
    file: PathArgument = None,
    config: command.ConfigOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Make lost pages anew from the records, and accept what cannot be read as lost.

    Removes nothing; Mercury may run meanwhile.
    """
    path = _path(file, config)
    damage = [one for one in repair_bus(path) if one.explanation is None]
    if as_json:
        command.print_json({"file": str(path), "repaired": [_described(one) for one in damage]})
        return
    _print(damage)
    print(f"{path}: {f'{len(damage)} repaired' if damage else 'nothing to repair'}")


def _path(file: str | None, config: Path | None) -> Path:
    uri = file or command.settings_for(config).bus.uri
    path = Path(uri.removeprefix("embedded:"))
    if "://" in uri or uri == "memory:":
        raise ConfigurationError(f"{uri} is not an embedded bus: it has no files here")
    if not path.exists():
        raise BusUnavailableError(f"the bus file {path} does not exist")
    return path.absolute()


def _described(damage: Damage) -> dict[str, object]:
    first, end = (None, None) if damage.gap is None else (damage.gap.first, damage.gap.end)
    return {
        "topic": damage.topic,
        "found": damage.found,
        "first": first,
        "end": end,
        "explanation": damage.explanation,
    }


def _print(damage: Sequence[Damage]) -> None:
    for one in damage:
        if one.gap is None or one.explanation is None:
            print(one.found)
            continue
        why = _KNOWN[one.explanation]
        print(f"{one.topic}: offsets {one.gap.first} to {one.gap.end - 1} hold no records: {why}")
