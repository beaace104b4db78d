"""Markdown from rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Text that may stand in a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table, or nothing where there are no rows."""
    lines = ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    if not lines:
        return ""
    begin = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*begin, *lines]) + "\n"


def code(text: object) -> str:
    """Text as code in a table; a backquote cannot stand in it."""
    return f"`{text}`" if str(text) else ""
