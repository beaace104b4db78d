"""The pMediator block of a .moos file (pMediator Listing 5.1), as settings of [moos].

In such a file `//` begins a comment, names stand in any case, and each application has a block:

    ProcessConfig = pMediator
    {
      max_tries = 6
    }
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mercury.model.errors import ConfigurationError

PROCESS = "pMediator"

# Each line adds to those before it.
_LISTS = {"mates": "mates", "mate": "mates", "no_ack_vars": "no_ack_vars"} | {
    "no_ack_var": "no_ack_vars"
}
_SINGLE = {"vname", "community", "group", "max_tries", "resend_thresh"}
# What any application of MOOS may have in its block, of no meaning here.
_OF_EVERY_APPLICATION = {
    *("apptick", "commstick", "maxapptick", "iteratemode", "catchcommandmessages"),
    *("max_appcast_events", "max_appcast_run_warnings", "term_reporting", "term_report_interval"),
    *("app_logging", "deprecated_ok", "verbose"),
}


def read_moos_file(path: Path) -> dict[str, str | int | float]:
    """The pMediator block of a .moos file, as settings of [moos]."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None
    return read_mediator_block(text, str(path))


def read_mediator_block(text: str, file: str = "") -> dict[str, str | int | float]:
    """The settings of the block `ProcessConfig = pMediator`, by the names of [moos]."""
    found: dict[str, str | int | float] = {}
    in_file = f"{file}: " if file else ""
    has_block = False
    for line in _lines(text, in_file):
        if line.process is None:
            if line.name == "community":  # of the whole file
                found.setdefault("community", line.value)
            continue
        if line.process.lower() != PROCESS.lower():
            continue
        has_block = True
        if not line.name or line.name in _OF_EVERY_APPLICATION:
            continue
        where = f"{in_file}line {line.number}"
        if line.name in _LISTS:
            key = _LISTS[line.name]
            found[key] = ",".join(filter(None, [str(found.get(key, "")), line.value]))
        elif line.name in _SINGLE:
            found[line.name] = _value(line.name, line.value, where)
        else:
            raise ConfigurationError(_unknown(line.name, where))
    if not has_block:
        raise ConfigurationError(f"{in_file}there is no block ProcessConfig = {PROCESS}")
    return found


class _Line(NamedTuple):
    number: int
    process: str | None  # whose block it stands in
    name: str  # in small letters; empty where a block begins
    value: str


def _lines(text: str, in_file: str) -> Iterator[_Line]:
    """Settings of a .moos file, and a nameless line where a block begins."""
    process: str | None = None
    is_open = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("//")[0].strip()
        where = f"{in_file}line {number}"
        if process is not None and not is_open:
            if line and not line.startswith("{"):
                raise ConfigurationError(f"{where}: expected {{ after ProcessConfig = {process}")
            is_open, line = line.startswith("{"), line.removeprefix("{").strip()
        ends = is_open and line.endswith("}")
        line = line.removesuffix("}").strip() if ends else line
        name, equals, value = (part.strip() for part in line.partition("="))
        if line.startswith("#"):
            raise ConfigurationError(f"{where}: {line.split()[0]} is for nsplug, expand it first")
        if name.lower() == "processconfig":
            if is_open:
                raise ConfigurationError(f"{where}: the block of {process} is not closed")
            is_open, process = value.endswith("{"), value.removesuffix("{").strip()
            if not re.fullmatch(r"\S+", process):
                raise ConfigurationError(f"{where}: ProcessConfig = {value!r} names no process")
            yield _Line(number, process, "", "")
        elif equals and name:
            yield _Line(number, process, name.lower(), value)
        elif line and process is not None:
            raise ConfigurationError(f"{where}: expected NAME = VALUE, not {line!r}")
        if ends:
            process, is_open = None, False
    if process is not None:
        raise ConfigurationError(f"{in_file}the block of {process} is not closed")


def _value(name: str, value: str, where: str) -> str | int | float:
    if name == "max_tries":
        if not re.fullmatch(r"\d{1,9}", value, re.ASCII) or not int(value):
            raise ConfigurationError(f"{where}: max_tries = {value} is no number from 1 on")
        return int(value)
    if name == "resend_thresh":
        if not re.fullmatch(r"\d+\.?\d*|\.\d+", value, re.ASCII) or not float(value):
            raise ConfigurationError(f"{where}: resend_thresh = {value} is no time in seconds")
        return float(value)
    if not value:
        raise ConfigurationError(f"{where}: {name} is empty")
    return value


def _unknown(name: str, where: str) -> str:
    likely = difflib.get_close_matches(name, [*_LISTS, *_SINGLE], n=1, cutoff=0.6)
    hint = f", did you mean {likely[0]}?" if likely else ""
    return f"{where}: {name} is no setting of {PROCESS}{hint}"
