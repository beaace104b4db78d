"""Checks the arguments of the methods of clients and services, by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from mercury.mediator import NAMES
from mercury.model.area import Area, Polygon, Position
from mercury.model.errors import ArgumentError
from mercury.model.message import Address, DeliveryPolicy, Kind, Message
from mercury.session.adapter_side import MAX_IDENTITY_BYTES

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN = 60  # characters of what was given instead


def _is_a(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _fits(value: object) -> bool:
    """Whether a client's name, if it is one, is short enough."""
    name = value.name if isinstance(value, Address) and value.kind == "client" else value
    return not isinstance(name, str) or len(name.encode()) <= MAX_IDENTITY_BYTES


def _is_position(value: object) -> bool:
    is_pair = isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value))
    return isinstance(value, Position) or is_pair


def _are_names(value: object) -> bool:
    return (
        isinstance(value, Collection) and not isinstance(value, str) and all(map(_is_name, value))
    )


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, UUID) or (isinstance(value, str) and bool(UUID(value)))
    except ValueError:
        return False


LONGEST_S = 1e9  # about 30 years

_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("lat", "lon", "heading_deg", "speed_mps", "accuracy_m", "altitude_m", "radius_m",
         "within_m", "near_m", "hysteresis_m"),
        (_is_number, "a number"),
    ),
    **dict.fromkeys(
        ("timeout_s", "retry_s", "connect_timeout_s", "expires_in_s", "validity_s", "ttl_s",
         "dwell_s"),
        (lambda value: _is_number(value) and 0 <= value <= LONGEST_S,
         "a number of seconds from 0 to 1e9"),
    ),
    **dict.fromkeys(("topic", "kind", "text", "where", "uri"), (_is_a(str), "a text")),
    **dict.fromkeys(("identity", "name", "client", "group"), (_is_name, "a name")),
    **dict.fromkeys(("moving", "ordered", "inside", "report"), (_is_a(bool), "True or False")),
    "position": (_is_position, "a Position or a pair (lat, lon)"),
    "values": (
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        "a mapping from texts to values, such as {'price': 1.5}",
    ),
    "priority": (_is_whole, "a whole number from 0 to 9"),
    "limit": (lambda value: _is_whole(value) and value > 0, "a whole number above 0"),
    "policy": (
        lambda value: isinstance(value, DeliveryPolicy) or value in list(NAMES),
        f"one of {', '.join(map(repr, NAMES))}",
    ),
    "groups": (_are_names, "names of groups, such as ['blue']"),
    "handler": (callable, "a function"),
    "message": (_is_a(Message), "a Message"),
    "id": (_is_id, "the id of a message"),
    "place": (
        lambda value: isinstance(value, Area) or _is_position(value),
        "an Area, a Position or a pair (lat, lon)",
    ),
    "polygon": (_is_a(Polygon, list, tuple), "a Polygon or its corners"),
    "bus": (lambda value: isinstance(value, str) or hasattr(value, "append"), "a Bus or its URI"),
    "names": (_are_names, "names of topics on the bus"),
    "start": (lambda value: value in ("latest", "earliest") or hasattr(value, "timestamp_us"),
              "'latest', 'earliest' or a FromTime"),
    # Where an argument of the same name means something else.
    "Client.identity": (lambda value: _is_name(value) and _fits(value),
                        f"a name of at most {MAX_IDENTITY_BYTES} bytes"),
    "on.kind": (_is_a(Kind), "a Kind: write `@client.on(Kind.ALERT)`, or `@client.on()` for all"),
    "tell.to": (
        lambda value: isinstance(value, str | Address | Area | None) and _fits(value),
        "the name of a client, an Address, an Area, or None with within_m",
    ),
    "alert.to": (
        lambda value: (isinstance(value, Area | Address) and _fits(value)) or _is_position(value),
        "an Area, an Address, a Position or a pair (lat, lon)",
    ),
}  # fmt: skip


def check(method: str, name: str, value: object) -> None:
    """Raise ArgumentError if an argument is not what the method takes."""
    holds, takes = _RULES.get(f"{method}.{name}") or _RULES.get(name) or (None, "")
    if holds is not None and not holds(value):
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        lacks = isinstance(value, list | tuple) and any(
            one == "" for one in value if isinstance(one, str)
        )
        why = ": a name has 1 to 128 bytes" if lacks or not _fits(value) else ""
        raise ArgumentError(name, f"{method}: {name} takes {takes}, not {shown}{why}")


def checked(method: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a method before it runs, by their names."""
    label = method.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    parameters = inspect.signature(method).parameters
    names = [name for name in parameters if name != "self"]
    optional = {name for name in names if "None" in str(parameters[name].annotation)}
    rest = next((name for name in names if parameters[name].kind.name == "VAR_POSITIONAL"), "")

    def check_all(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        given: Iterable[tuple[str, object]] = zip(names, args[1:], strict=False)
        if rest:
            given = ((rest, [value]) for value in args[1:])
        for name, value in (*given, *kwargs.items()):
            if value is not None or name not in optional:
                check(label, name, value)

    if inspect.iscoroutinefunction(method):

        async def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            check_all(args, kwargs)
            return await method(*args, **kwargs)

        return functools.wraps(method)(run)  # type: ignore[return-value]

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_all(args, kwargs)
        return method(*args, **kwargs)

    return call
