"""What holds and where it came from, for people; secrets never show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
        if not isinstance(table, BaseModel):
            continue
        lines += ["", f"# {field.description or section}", f"[{section}]"]
        for name, value, description in _walk(table):
            masked = _masked(value)
            hidden = "" if masked == value else "# "
            lines += [f"# {description}", f"{hidden}{name} = {_toml_value(masked)}"]
    return "\n".join(lines) + "\n"


def _walk(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, object, str]]:
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value, field.description or ""


def _masked(value: object) -> object:
    if isinstance(value, SecretStr):
        return MASK
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
