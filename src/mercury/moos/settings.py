"""The settings of the bridge, checked: the table [moos], which flags and a .moos file override."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from mercury.config import MoosSettings
from mercury.model.errors import ConfigurationError
from mercury.moos.text_forms import ALL

ANY = "*"  # the route of mates that have none of their own

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_VARIABLE = re.compile(r'[^\s,="{}]+')


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
    _check_reachable(mates, routes, moos.adapter)
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


def _check_reachable(
    mates: tuple[str, ...], routes: dict[str, Endpoint], adapter: str | None
) -> None:
    if not routes and adapter is None:
        raise ConfigurationError("there is nowhere to send to: give --to MATE=HOST:PORT")
    lost = [mate for mate in mates if mate.lower() not in routes]
    if lost and ANY not in routes and adapter is None:
        raise ConfigurationError(f"there is no route to {lost[0]}: give --to {lost[0]}=HOST:PORT")


def _items(*lists: str) -> list[str]:
    return [item for text in lists for part in text.split(",") if (item := part.strip())]


def _name(text: str, what: str) -> str:
    name = text.strip()
    if not NAME.fullmatch(name) or name.lower() == ALL:
        raise ConfigurationError(f"{what}: {text!r} is no name of a vehicle or group")
    return name
