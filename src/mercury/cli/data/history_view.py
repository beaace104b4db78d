"""Rows of stored tables, for people and for programs."""

from __future__ import annotations

from typing import Any

from mercury.cli.common import command


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Positions to a centimetre, the rest to what was measured."""
    return {
        name: round(value, 7 if name in ("lat", "lon") else 2)
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }


def counted(number: int, noun: str) -> str:
    """A number of things, of one as well."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show(result: dict[str, Any], rows: list[dict[str, Any]], as_json: bool, none: str) -> None:
    """Print the result for programs, or a line for each row."""
    if as_json:
        command.print_json(result)
        return
    if not rows:
        print(none)
        return
    # As wide as it is: an id that is cut or broken cannot be pasted.
    cells = [list(rows[0]), *([_cell(*item) for item in row.items()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [any(isinstance(row[name], int | float) for row in rows) for name in rows[0]]
    for line in cells:
        aligned = zip(line, widths, numeric, strict=True)
        parts = (
            text.rjust(width) if right else text.ljust(width) for text, width, right in aligned
        )
        print("  ".join(parts).rstrip())


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "time":
        return str(value)[:23].replace("T", " ")  # UTC, to the millisecond
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return " ".join(text.split())  # a message's text may have several lines
