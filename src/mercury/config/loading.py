"""One TOML file, the environment over it, flags over that; every mistake is one clear sentence."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from mercury.config.settings import Origin, Settings
from mercury.model.errors import ConfigurationError

PREFIX = "MERCURY_"
CONFIG_VARIABLE = "MERCURY_CONFIG"
DEFAULT_FILE = Path("mercury.toml")

_Tables = dict[str, dict[str, Any]]


class _Layer(NamedTuple):
    """What one source says."""

    origin: Origin
    file: Path | None  # only of the file layer
    tables: _Tables

    def label(self, name: str) -> str:
        """How a user finds this setting in this source."""
        if self.origin == "environment":
            return _variable(name)
        return f"{self.file}: {name}" if self.file else f"flag {name}"


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
        for section, values in layer.tables.items():
            merged.setdefault(section, {}).update(values)
            origins.update({f"{section}.{key}": layer.origin for key in values})
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
    for section, table in document.items():
        if isinstance(table, dict) and table:
            for key in table:
                _check_known(layer, f"{section}.{key}")
        elif section not in Settings.model_fields:
            _check_known(layer, section)
        elif not isinstance(table, dict):
            raise ConfigurationError(f"{layer.label(section)} should be a table, [{section}]")
    return layer


def _read_environment() -> _Layer:
    layer = _Layer("environment", None, {})
    for variable in sorted(os.environ):
        name = variable.lower().removeprefix(PREFIX.lower()).replace("__", ".")
        if not variable.upper().startswith(PREFIX) or variable.upper() == CONFIG_VARIABLE:
            continue
        if "." in name:
            _check_known(layer, name)
        elif name in Settings.model_fields:
            raise ConfigurationError(
                f"{variable} names a section, its settings are {_variable(name)}__<NAME>"
            )
    return layer._replace(tables=EnvSettingsSource(Settings)())


def _read_flags(overrides: Mapping[str, object]) -> _Layer:
    layer = _Layer("flag", None, {})
    for name, value in overrides.items():
        _check_known(layer, name)
        section, _, key = name.partition(".")
        if value is not None:
            layer.tables.setdefault(section, {})[key] = value
    return layer


def _check_known(layer: _Layer, name: str) -> None:
    fields = _fields()
    if name in fields:
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


def _fields() -> dict[str, FieldInfo]:
    """All settings by dotted name."""
    return {
        f"{section}.{key}": field
        for section, outer in Settings.model_fields.items()
        for key, field in getattr(outer.annotation, "model_fields", {}).items()
    }


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _sentence(error: ErrorDetails, layers: list[_Layer]) -> str:
    section, *rest = map(str, error["loc"])
    context = error.get("ctx", {})
    # A contradiction is blamed on the setting that somebody gave, not on a default.
    keys = context.get("keys", rest[:1])
    label, key = next(
        (layer.label(f"{section}.{key}"), key)
        for layer in reversed(layers)
        for key in keys
        if key in layer.tables.get(section, {})
    )
    if "keys" in context:
        return f"{label}: {error['msg']}"
    message = re.sub(r"^\w+ (?=should )", "", error["msg"]).partition(", unable to")[0]
    annotation = _fields()[f"{section}.{key}"].annotation
    if SecretStr in (annotation, *get_args(annotation)):
        return f"{label} {message}"
    given = repr(error["input"])
    return f"{label} {message}, not {given if len(given) <= 60 else given[:57] + '...'}"
