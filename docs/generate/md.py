"""Markdown from rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1]


def cell(text: object) -> str:
    """Text that may stand in a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def linked(text: str) -> str:
    """Text in which the pages that it names are links with their titles, for a page of the reference."""

    def link(found: re.Match[str]) -> str:
        title = (DOCS / found[1]).read_text("utf-8").partition("\n")[0].removeprefix("# ")
        return f"[{title}](../{found[1]})"

    return re.sub(r"docs/([a-z-]+/[a-z-]+\.md)", link, text)


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
