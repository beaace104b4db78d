"""The settings in force and where they come from, for people; secrets are masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, SecretStr

from mercury.config.settings import Origin, Settings

MASK = "**********"

_PASSWORD_IN_URI = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]+@")


class Setting(NamedTuple):
    """One line of `mercury config`."""

    name: str
    value: object
    origin: Origin
    description: str


def describe(settings: Settings) -> list[Setting]:
    """List every setting by its dotted name, with secrets masked."""
    return [
        Setting(name, _masked(value), settings.origin(name), description)
        for name, value, description in _walk(settings)
    ]


def to_toml(settings: Settings) -> str:
    """Write a configuration file to start from; what is masked is commented out."""
    lines = ['# "none" stands for no value.']
    for section, field in type(settings).model_fields.items():
        table = getattr(settings, section)
        if isinstance(table, BaseModel):
            lines += ["", f"# {field.description or section}", *_table_lines(table, section)]
    return "\n".join(lines) + "\n"


def _table_lines(table: BaseModel, path: str) -> Iterator[str]:
    yield f"[{path}]"
    for key, field in type(table).model_fields.items():
        value = getattr(table, key)
        if not isinstance(value, BaseModel | dict):
            masked = _masked(value)
            hidden = "# " if MASK in str(masked) else ""
            yield from (f"# {field.description}", f"{hidden}{key} = {_toml_value(masked)}")
    # Tables come last: what followed them would be theirs.
    for key, field in type(table).model_fields.items():
        value = getattr(table, key)
        if isinstance(value, BaseModel):
            yield from ("", f"# {field.description}", *_table_lines(value, f"{path}.{key}"))
        elif isinstance(value, dict):
            yield from ("", f"# {field.description}")
            tables = {name: one for name, one in value.items() if isinstance(one, BaseModel)}
            if not tables:  # a dict has tables or values, never both
                yield f"[{path}.{key}]"
                for name, inner in value.items():
                    yield f"{_toml_key(name)} = {_toml_value(_masked(inner))}"
            for name, one in tables.items():
                yield from _table_lines(one, f"{path}.{key}.{_toml_key(name)}")


def _walk(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, object, str]]:
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{prefix}{key}.")
        elif isinstance(value, dict) and value:
            for name, inner in value.items():
                if isinstance(inner, BaseModel):
                    yield from _walk(inner, f"{prefix}{key}.{name}.")
                else:
                    yield f"{prefix}{key}.{name}", inner, field.description or ""
        else:
            yield prefix + key, value, field.description or ""


def _masked(value: object) -> object:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return _PASSWORD_IN_URI.sub(rf"\1:{MASK}@", value)
    return value


def _toml_value(value: object) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, str):
        # JSON and TOML escape alike, but for the one control character that JSON lets through.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
