"""Every command with its arguments and options, from the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from mercury.cli.main import app

from .md import code, table

HEAD = """# Commands

Every command has `--help`, which says the same. Settings come from `mercury.toml`, the environment
and flags, in rising order ([settings](settings.md)). Exit codes: 0 is success, 1 means that something
failed and one sentence on stderr says what, 2 is a wrong command line, 75 asks a supervisor to start it again.
"""


def commands() -> str:
    """The page."""
    root = typer.main.get_command(app)
    context = root.make_context("mercury", [], resilient_parsing=True)
    return HEAD + "".join(_sections(root, context, "mercury"))


def _sections(group: Any, context: Any, path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])  # imports what is imported late
        if command is None or command.hidden:
            continue
        yield _section(command, f"{path} {name}")
        if hasattr(command, "list_commands"):
            inner = command.make_context(name, [], parent=context, resilient_parsing=True)
            yield from _sections(command, inner, f"{path} {name}")


def _section(command: Any, path: str) -> str:
    depth = "#" * (path.count(" ") + 1)
    context = command.make_context(path, [], resilient_parsing=True)
    arguments, options = [], []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context)
        if record is None:
            continue
        name, meaning = (text.replace("\\[", "[") for text in record)
        rows = arguments if parameter.param_type_name == "argument" else options
        rows.append((code(" ".join(name.split())), _escaped(meaning)))
    text = inspect.cleandoc(command.help or "").replace("\f", "")
    parts = (
        f"\n{depth} {path}\n",
        text + "\n",
        table(("argument", ""), arguments),
        table(("option", ""), options),
    )
    return "\n".join(part for part in parts if part)


def _escaped(text: str) -> str:
    """Help as Markdown: what looks like a tag or a link is neither."""
    return text.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")
