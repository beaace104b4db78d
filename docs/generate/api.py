"""The public names of the package, each by its docstring."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import Enum

import mercury
from mercury.model import errors

from .md import code, table

HEAD = """# Python API

Everything that `import mercury` offers, from the docstrings. Units stand in the names: `_m` are metres,
`_s` seconds, `_deg` degrees, `_mps` metres a second, `_us` microseconds since 1970.
"""
GROUPS = {
    "Connect": ("connect", "Client", "ServiceEndpoint"),
    "What comes back": (
        "ContentStream", "MatchStream", "MovingPublication", "Match", "Message", "Receipts",
    ),
}  # fmt: skip
# Public within the package, and of no use to an application.
INTERNAL = (
    "after_session", "ask", "compose", "confirm", "forget", "mediator", "reception", "refuse", "regroup", "run",
    "say_again", "side", "take", "auth", "unknown", "version",
)  # fmt: skip


def api() -> str:
    """The page."""
    first = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "Addresses, areas and kinds": sorted(set(mercury.__all__) - set(first))}
    parts = [HEAD]
    for title, names in groups.items():
        parts.append(f"\n## {title}\n")
        parts += (_entry(name) for name in names if name in mercury.__all__)
    parts.append(
        "\n## Errors\n\nAll descend from `MercuryError`; each carries what it is about as attributes.\n"
    )
    parts.append("\n" + "\n".join(_error_tree(errors.MercuryError)) + "\n")
    return "".join(parts)


def _error_tree(error: type, depth: int = 0) -> Iterator[str]:
    said = " ".join((error.__doc__ or "").split())
    yield f"{'    ' * depth}- `{error.__name__}`: {said}"
    for below in error.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _error_tree(below, depth + 1)


def _entry(name: str) -> str:
    thing = getattr(mercury, name)
    path = f"{thing.__module__}.{thing.__qualname__}"
    if thing.__name__ != name:
        return (
            f"\n### {name} {{ #mercury.{name} }}\n\n`mercury.{name}` is [`mercury.{thing.__name__}`][{path}] "
            f"by the name that reads best: `async with mercury.{name}(…) as …`. It takes the same arguments.\n"
        )
    # What the library makes is not made by calling its class.
    called = name not in GROUPS["What comes back"] or name == "Message"
    hidden = ", ".join(f'"!^{name}$"' for name in ("_.*", *INTERNAL))
    return (
        f"\n::: {path}\n    options:\n      heading_level: 3\n      filters: [{hidden}]\n"
        f"      merge_init_into_class: {str(called).lower()}\n"
    ) + _held(thing)


def _held(thing: type) -> str:
    """What values of a plain type hold: members, fields, and what is too plain for a docstring."""
    is_enum = issubclass(thing, Enum)
    if not (is_enum or hasattr(thing, "_fields") or hasattr(thing, "__dataclass_fields__")):
        return ""
    lines = inspect.getsource(thing).splitlines()
    [definition] = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    rows = []
    for node in definition.body:
        comment = lines[node.lineno - 1].partition("  # ")[2]
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if is_enum:
                rows.append((code(name), code(ast.unparse(value)), comment))
            case ast.AnnAssign(target=ast.Name(name), annotation=kind) if name not in INTERNAL:
                if hasattr(thing, "__dataclass_fields__") and not comment:
                    continue  # its signature says all there is
                rows.append((code(name), code(ast.unparse(kind)), comment))
            case ast.FunctionDef(name=name, args=given, returns=kind) if not (
                name.startswith("_") or ast.get_docstring(node) or name in INTERNAL or kind is None
            ):
                said = ", ".join(one.arg for one in given.args if one.arg != "self")
                is_property = any(ast.unparse(one) == "property" for one in node.decorator_list)
                shown = name if is_property else f"{name}({said})"
                rows.append((code(shown), code(ast.unparse(kind)), ""))
    head = ("member", "value", "") if is_enum else ("field or method", "type", "")
    return "\n" + table(head, rows) if rows else ""
