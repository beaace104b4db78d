"""Every setting with its type, bounds, default and meaning, from the models that check it."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mercury.config import Settings

from .md import code, linked, table

HEAD = """# Settings

Settings come from `mercury.toml` in the working directory (or the file that `--config` or
`MERCURY_CONFIG` names), from the environment, and from flags, in rising order. The variable of a
setting is `MERCURY_`, its table, two underscores and its name, all in capitals: `adapter.port` is
`MERCURY_ADAPTER__PORT`. The text `none` stands for no value.

`mercury config` shows every value and where it came from; `mercury config --toml` prints a file to start from.
"""


def settings() -> str:
    """The page."""
    return HEAD + "".join(_tables(Settings, ""))


def _tables(model: type[BaseModel], path: str) -> Iterator[str]:
    rows = []
    inner: list[tuple[str, str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        nested, by_name = _nested(field.annotation)
        full = f"{path}.{name}" if path else name
        if nested is not None:
            said = f"{field.description}."
            if by_name:
                said += _built_in(model, name)
            inner.append((f"{full}.NAME" if by_name else full, said, nested))
        else:
            meaning = linked(field.description or "")
            rows.append((code(name), _type(field), code(_default(field)), meaning))
    if rows:
        yield "\n" + table(("setting", "type", "default", "meaning"), rows)
    for full, description, nested in inner:
        yield f"\n## [{full}] {{ #{full.lower().replace('.', '-')} }}\n\n{description}\n"
        yield from _tables(nested, full)


def _built_in(model: type[BaseModel], name: str) -> str:
    """The entries that are there without being configured: how they differ from the defaults below."""
    rows = []
    for key, entry in getattr(model(), name).items():
        fields = type(entry).model_fields
        values = [
            code(f"{field} = {json.dumps(value)}")
            for field, value in entry.model_dump().items()
            if value != fields[field].default
        ]
        rows.append((code(key), ", ".join(values)))
    return "\n\nBuilt in:\n\n" + table(("name", "with"), rows) if rows else ""


def _nested(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The table that a field is, and whether there is one for each name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for argument in typing.get_args(annotation):
        found, _ = _nested(argument)
        if found is not None:
            return found, typing.get_origin(annotation) not in (typing.Union, types.UnionType)
    return None, False


def _type(field: FieldInfo) -> str:
    bounds = []
    for note in field.metadata:
        for sign, name in ((">", "gt"), ("≥", "ge"), ("<", "lt"), ("≤", "le")):
            if (bound := getattr(note, name, None)) is not None:
                bounds.append(f"{sign} {bound:g}")
    return ", ".join([_name(field.annotation), *bounds])


def _name(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(str(value) for value in typing.get_args(annotation))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(_name(one) for one in typing.get_args(annotation))
    if annotation is type(None):
        return "none"
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if annotation in plain:
        return plain[annotation]
    arguments = typing.get_args(annotation)
    if arguments:
        origin = typing.get_origin(annotation)
        kind = {dict: "table", list: "list", tuple: "list"}.get(origin, "list")
        return f"{kind} of {_name(arguments[-1] if arguments[-1] is not ... else arguments[0])}"
    return {"Path": "path"}.get(annotation.__name__, annotation.__name__)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list, tuple)) and not value:
        return ""
    return str(value)
