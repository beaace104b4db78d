"""The wire format, from the comments of the .proto file and of the modules beside it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mercury.wire
from mercury.wire import packet, records

from .md import code, table

FOLDER = Path(mercury.wire.__file__).parent
_FIELD = re.compile(r"((?:repeated |optional )?[\w.<>, ]+?) (\w+) = (\d+);")
_VALUE = re.compile(r"(\w+) = (\d+);")


def wire() -> str:
    """The page."""
    text = (FOLDER / "mercury.proto").read_text("utf-8")
    return (
        "# Wire format\n\nA message travels as a Protocol Buffers `Envelope`: in a UDP packet after a "
        "header of 32 bytes, on the bus as a record's value, beside record headers.\n\n"
        f"## UDP packet\n\n{_prose(packet.__doc__)}\n"
        f"A packet has at most {packet.MAX_BODY_BYTES + packet.HEADER_BYTES:,} bytes. Flags: "
        f"{packet.WANTS_RECEIPT} asks for a receipt, {packet.CARRIES_RECEIPTS} says that the body "
        "carries receipts.\n\n"
        f"## Record headers\n\n{_prose(records.__doc__)}\n{_record_headers()}"
        f"\n## Messages\n\n{_prose(_leading(text))}\n" + "".join(_sections(text))
    )


def _prose(text: str | None) -> str:
    """A docstring as Markdown: what is indented is code."""
    parts = []
    for block in (text or "").strip().split("\n\n"):
        is_code = all(line.startswith("    ") for line in block.splitlines())
        parts.append(f"```text\n{block}\n```" if is_code else " ".join(block.split()))
    return "\n\n".join(parts) + "\n"


def _record_headers() -> str:
    """The names of headers, with the comments beside them."""
    source = (FOLDER / "records.py").read_text("utf-8")
    found = re.findall(r'^([A-Z]+) = "(\w+)"  # (.*)$', source, re.MULTILINE)
    return table(("header", "holds"), [(code(name), text) for _, name, text in found])


def _leading(text: str) -> str:
    lines = [line[2:].strip() for line in text.partition("syntax")[0].splitlines()]
    return "\n".join(lines)


def _sections(text: str) -> list[str]:
    """A heading and a table for each message and enumeration, in the file's order."""
    sections: list[str] = []
    before: list[str] = []  # comment lines that stand above what comes next
    rows: list[tuple[str, ...]] = []
    kind = ""
    for line in text.partition("package")[2].splitlines()[1:]:
        stripped = line.strip()
        if begun := re.match(r"(message|enum) (\w+) \{", line):
            kind, name = begun.groups()
            said = " ".join(before)
            sections.append(f"\n### {name}\n\n" + (f"{said}\n\n" if said else ""))
            before, rows = [], []
        elif line == "}":
            head = ("field", "number", "type", "") if kind == "message" else ("name", "number", "")
            sections[-1] += table(head, rows)
            kind, before = "", []
        elif stripped.startswith("//"):
            before.append(stripped[2:].strip())
        elif stripped:
            declared, _, comment = stripped.partition("//")
            note = " ".join([*before, comment.strip()]).strip()
            if kind == "enum" and (value := _VALUE.match(declared)):
                rows.append((code(value[1]), value[2], note))
                before = []
            elif field := _FIELD.match(declared):
                rows.append((code(field[2]), field[3], code(field[1]), note))
                before = []
        else:
            before = []
    return sections


def constants(path: Path) -> dict[str, str]:
    """The names in capitals that a module gives to texts."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name) and isinstance(statement.value.value, str)
    }
