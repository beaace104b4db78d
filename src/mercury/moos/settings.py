"""The settings of the bridge, checked: the table [moos], which flags and a .moos file override.

Of a .moos file the pMediator block counts (pMediator Listing 5.1). There `//` begins a comment,
names are case-insensitive, and each application has a block:

    ProcessConfig = pMediator
    {
      max_tries = 6
    }
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mercury.config import MoosSettings
from mercury.model.errors import ConfigurationError
from mercury.moos.text_forms import ALL

ANY = "*"  # the route of mates that have none of their own

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
PROCESS = "pMediator"
_VARIABLE = re.compile(r'[^\s,="{}]+')

# Each line adds to those before it.
_LISTS = {"mates", "mate", "no_ack_vars", "no_ack_var"}
_SINGLE = {"vname", "community", "group", "max_tries", "resend_thresh"}
# What any application of MOOS may have in its block, of no meaning here.
_OF_EVERY_APPLICATION = {
    *("apptick", "commstick", "maxapptick", "iteratemode", "catchcommandmessages"),
    *("max_appcast_events", "max_appcast_run_warnings", "term_reporting", "term_report_interval"),
    *("app_logging", "deprecated_ok", "verbose"),
}


class Endpoint(NamedTuple):
    """Where datagrams go to, or come in."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """The bridge of one vehicle, checked. MOOS compares names of vehicles in any case."""

    name: str
    community: str
    listen: Endpoint
    local: Endpoint  # the own community's pShare
    routes: dict[str, Endpoint] = field(default_factory=dict)  # by mate, in small letters
    group: str | None = None
    mates: tuple[str, ...] = ()  # as named; empty stands for all that have a route
    no_ack_vars: frozenset[str] = frozenset()
    max_tries: int = 5
    resend_thresh_s: float = 2.0


def bridge_settings(moos: MoosSettings) -> BridgeSettings:
    """Check what was configured; raises ConfigurationError in one sentence."""
    vname = moos.vname or moos.community
    if vname is None:
        raise ConfigurationError("the vehicle needs a name: --name, or vname in [moos]")
    name = _name(vname, "the vehicle's name")
    routes = {
        mate if mate == ANY else _name(mate, "a route's mate").lower(): endpoint(
            where, f"route of {mate}"
        )
        for mate, where in moos.routes.items()
    }
    named = [_name(mate, "a mate's name") for mate in _items(moos.mates, moos.mate)]
    mates = tuple({mate.lower(): mate for mate in reversed(named)}.values())[::-1]
    for known in (*routes, *mates):
        if known.lower() == name.lower():
            raise ConfigurationError(f"{name} is this vehicle, it cannot be its own mate")
    for variable in _items(moos.no_ack_vars, moos.no_ack_var):
        if not _VARIABLE.fullmatch(variable):
            raise ConfigurationError(f"{variable!r} in no_ack_vars is no name of a variable")
    if not routes and moos.adapter is None:
        raise ConfigurationError("there is nowhere to send to: give --to MATE=HOST:PORT")
    lost = [mate for mate in mates if mate.lower() not in routes]
    if lost and ANY not in routes and moos.adapter is None:
        raise ConfigurationError(f"there is no route to {lost[0]}: give --to {lost[0]}=HOST:PORT")
    host_and_port = moos.listen if ":" in moos.listen else f"0.0.0.0:{moos.listen}"
    return BridgeSettings(
        name=name,
        community=moos.community or name,
        listen=endpoint(host_and_port, "the port to listen on", free_port=True),
        local=endpoint(moos.local, "the community's pShare"),
        routes=routes,
        group=None if moos.group is None else _name(moos.group, "the group"),
        mates=mates,
        no_ack_vars=frozenset(_items(moos.no_ack_vars, moos.no_ack_var)),
        max_tries=moos.max_tries,
        resend_thresh_s=moos.resend_thresh,
    )


def endpoint(text: str, what: str, *, free_port: bool = False) -> Endpoint:
    """Read HOST:PORT; port 0 only where a free one may be taken."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    least = 0 if free_port else 1
    if not colon or not host or not re.fullmatch(r"\d{1,5}", port, re.ASCII):
        raise ConfigurationError(f"{what}: {text!r} is not HOST:PORT")
    if not least <= int(port) <= 65535:
        raise ConfigurationError(f"{what}: {port} is no port")
    return Endpoint(host, int(port))


def route(text: str) -> tuple[str, str]:
    """Split MATE=HOST:PORT of the command line."""
    mate, equals, where = text.partition("=")
    if not equals or not mate.strip() or not where.strip():
        raise ConfigurationError(f"--to {text!r} is not MATE=HOST:PORT")
    return mate.strip(), where.strip()


def _items(*lists: str) -> list[str]:
    return [item for text in lists for part in text.split(",") if (item := part.strip())]


def _name(text: str, what: str) -> str:
    name = text.strip()
    if not NAME.fullmatch(name) or name.lower() == ALL:
        raise ConfigurationError(f"{what}: {text!r} is no name of a vehicle or group")
    return name


# A .moos file


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
    for number, process, name, value in _lines(text, in_file):
        if process is None:
            if name == "community":  # of the whole file
                found.setdefault("community", value)
            continue
        if process.lower() != PROCESS.lower():
            continue
        has_block = True
        if not name or name in _OF_EVERY_APPLICATION:
            continue
        where = f"{in_file}line {number}"
        if name in _LISTS:
            key = f"{name.removesuffix('s')}s"
            found[key] = ",".join(filter(None, [str(found.get(key, "")), value]))
        elif name in _SINGLE:
            found[name] = _value(name, value, where)
        else:
            likely = difflib.get_close_matches(name, [*_LISTS, *_SINGLE], n=1)
            hint = f", did you mean {likely[0]}?" if likely else ""
            raise ConfigurationError(f"{where}: {name} is no setting of {PROCESS}{hint}")
    if not has_block:
        raise ConfigurationError(f"{in_file}there is no block ProcessConfig = {PROCESS}")
    return found


def _lines(text: str, in_file: str) -> Iterator[tuple[int, str | None, str, str]]:
    """Settings of a .moos file: line, process whose block it is, name in small letters, value.

    A line without a name is the beginning of a block.
    """
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
            yield number, process, "", ""
        elif equals and name:
            yield number, process, name.lower(), value
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
