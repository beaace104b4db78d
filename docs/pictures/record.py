"""Draws docs/pictures/first-alert.svg: the terminals of the README, as they really were.

python docs/pictures/record.py
"""

from __future__ import annotations

import re
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "docs"))

from walkthrough import PROMPT, Terminal, walking

COLUMNS = 116
# Colours stay; what moves the cursor does not.
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]|\x1b[=>()][0-9A-B]?|\x07")


def main() -> None:
    """Run the README, and draw its terminals."""
    console = Console(record=True, width=COLUMNS + 4, file=StringIO())
    with (
        tempfile.TemporaryDirectory() as folder,
        walking(Path(folder), columns=COLUMNS, in_colour=True) as walk,
    ):
        walk.run("README.md")
        for name in sorted(name for name in walk.terminals if name.startswith("Terminal ")):
            shown = walk.usual(session(walk.terminals[name]))
            console.print(
                Panel(Text.from_ansi(shown), title=name, title_align="left", border_style="dim")
            )
    svg = console.export_svg(title="A first alert")
    # Nothing is fetched from the Internet, fonts neither.
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    (HERE / "first-alert.svg").write_text(svg, "utf-8")


def session(terminal: Terminal) -> str:
    """What a person saw: the commands behind a prompt, and what came after each."""
    terminal.read()
    shown = PROMPT.split(_MOVES.sub("", terminal.raw))[2::2][1:]  # without the exit codes
    parts = []
    for command, output in zip(terminal.commands, shown, strict=False):
        parts.append(f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\n{output.strip()}")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
