"""The public names of the package, each by its docstring."""

from __future__ import annotations

from collections.abc import Iterator

import mercury
from mercury.model import errors

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
    "say_again", "side", "take",
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
    hidden = ", ".join(f'"!^{name}$"' for name in ("_.*", *INTERNAL))
    return f"\n::: {path}\n    options:\n      heading_level: 3\n      filters: [{hidden}]\n"
