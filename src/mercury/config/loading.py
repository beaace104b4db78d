"""One TOML file, the environment over it, flags over that; every mistake is one clear sentence."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from mercury.config.settings import Origin, Settings
from mercury.model.errors import ConfigurationError

PREFIX = "MERCURY_"
CONFIG_VARIABLE = "MERCURY_CONFIG"
DEFAULT_FILE = Path("mercury.toml")

_Tables = dict[str, Any]


class _Environment(Settings, BaseSettings):
    """The settings by names of environment variables, for pydantic to read."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True
    )


class _Layer(NamedTuple):
    """The settings of one source."""

    origin: Origin
    file: Path | None  # only of the file layer
    tables: _Tables

    def label(self, name: str) -> str:
        """The name of this setting in this source, for people."""
        if self.origin == "environment":
            return _variable(name)
        return f"{self.file}: {name}" if self.file else f"flag {name}"

    def says(self, name: str) -> bool:
        """Whether this source has a setting or a table of this dotted name."""
        table: Any = self.tables
        for part in name.split("."):
            if not isinstance(table, dict) or part not in table:
                return False
            table = table[part]
        return True


def load_settings(
    path: Path | None = None, overrides: Mapping[str, object] | None = None
) -> Settings:
    """Read all sources, or raise ConfigurationError.

    `path` defaults to what MERCURY_CONFIG names, or to ./mercury.toml where that exists.
    `overrides` are flags by dotted name, `{"adapter.port": 7401}`; None stands for not given.
    """
    layers = [_read_file(path), _read_environment(), _read_flags(overrides or {})]
    merged: _Tables = {}
    origins: dict[str, Origin] = {}
    for layer in layers:
        _merge(merged, layer.tables)
        origins.update({name: layer.origin for name, _ in _leaves(layer.tables)})
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error.errors()[0], layers)) from None
    settings._origins = origins
    return settings


def _read_file(path: Path | None) -> _Layer:
    named_by = ""
    if path is None and (named := os.environ.get(CONFIG_VARIABLE)):
        path, named_by = Path(named), f", named by {CONFIG_VARIABLE},"
    if path is None:
        if not DEFAULT_FILE.exists():
            return _Layer("file", DEFAULT_FILE, {})
        path = DEFAULT_FILE
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"{path}{named_by} cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path} is not UTF-8 text at line {line}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    layer = _Layer("file", path, document)
    for name, value in _leaves(document):
        if not _is_table(name):
            _check_known(layer, name)
        elif not isinstance(value, dict):
            raise ConfigurationError(f"{layer.label(name)} should be a table, [{name}]")
    return layer


def _leaves(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables, by dotted name; an empty table is a value."""
    for key, value in tables.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _merge(under: _Tables, over: _Tables) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key, {}), dict):
            _merge(under.setdefault(key, {}), value)
        else:
            under[key] = value


def _read_environment() -> _Layer:
    layer = _Layer("environment", None, {})
    for variable in sorted(os.environ):
        name = variable.lower().removeprefix(PREFIX.lower()).replace("__", ".")
        if not variable.upper().startswith(PREFIX) or variable.upper() == CONFIG_VARIABLE:
            continue
        if "." in name:
            if not _is_table(name):  # a table within a section may be given as JSON
                _check_known(layer, name)
        elif name in Settings.model_fields:
            raise ConfigurationError(
                f"{variable} names a section, its settings are {_variable(name)}__<NAME>"
            )
    return layer._replace(tables=EnvSettingsSource(_Environment)())


def _read_flags(overrides: Mapping[str, object]) -> _Layer:
    layer = _Layer("flag", None, {})
    for name, value in overrides.items():
        _check_known(layer, name)
        *path, key = name.split(".")
        table = layer.tables
        if value is not None:
            for part in path:
                table = table.setdefault(part, {})
            table[key] = value
    return layer


def _check_known(layer: _Layer, name: str) -> None:
    fields = _fields(name)
    if name in fields or _is_in_free_table(name, fields):
        return
    # A setting under the wrong section is likelier than a slip of the pen.
    key = name.rpartition(".")[2]
    likely = [known for known in fields if known.endswith("." + key)]
    likely = likely or difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
    label = layer.label(name)
    if not likely:
        raise ConfigurationError(f"{label} is not a setting")
    suggestion = _variable(likely[0]) if layer.origin == "environment" else likely[0]
    raise ConfigurationError(f"{label} is not a setting, did you mean {suggestion}?")


def _is_in_free_table(name: str, fields: Mapping[str, FieldInfo]) -> bool:
    """Whether it is in a table whose keys are the user's own, with dots or without."""
    tables = (known for known in fields if name.startswith(f"{known}."))
    return any(get_origin(fields[known].annotation) is dict for known in tables)


def _is_table(name: str) -> bool:
    return any(known.startswith(f"{name}.") for known in _fields(name))


def _fields(like: str) -> dict[str, FieldInfo]:
    """All settings by dotted name; where users name a table, it is named as in `like`."""
    given = tuple(like.split("."))

    def walk(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, FieldInfo]]:
        for key, field in model.model_fields.items():
            here = (*path, key)
            tables = [
                inner
                for inner in (field.annotation, *get_args(field.annotation))
                if isinstance(inner, type) and issubclass(inner, BaseModel)
            ]
            if not tables:
                yield ".".join(here), field
            elif tables[0] is field.annotation:
                yield from walk(tables[0], here)
            else:
                named_here = given[: len(here)] == here and len(given) > len(here)
                name = given[len(here)] if named_here else "<name>"
                yield from walk(tables[0], (*here, name))

    return dict(walk(Settings, ()))


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _sentence(error: ErrorDetails, layers: list[_Layer]) -> str:
    path = list(map(str, error["loc"]))
    context = error.get("ctx", {})
    if error["type"] == "missing":
        missing = path.pop()
        return f"{_label([path], layers)} needs a {missing}"
    if "keys" in context:
        # A contradiction is reported for a setting that was given, not for a default.
        label = _label([[*path, key] for key in context["keys"]], layers)
        return f"{label}: {error['msg']}"
    label = _label([path], layers)
    message = re.sub(r"^\w+ (?=should )", "", error["msg"]).partition(", unable to")[0]
    name = ".".join(path)
    field = _fields(name).get(name)
    annotation = field.annotation if field else None
    if SecretStr in (annotation, *get_args(annotation)):
        return f"{label} {message}"
    given = repr(error["input"])
    return f"{label} {message}, not {given if len(given) <= 60 else given[:57] + '...'}"


def _label(paths: list[list[str]], layers: list[_Layer]) -> str:
    """The place of the first of these that was given, or of the table around it."""
    for length in range(len(paths[0]), 0, -1):
        for layer in reversed(layers):
            for path in paths:
                name = ".".join(path[:length])
                if layer.says(name):
                    return layer.label(name)
    return ".".join(paths[0])
