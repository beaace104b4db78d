"""What the methods of clients and services take, by the names of their arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
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


_Rule = tuple[Callable[[Any], bool], str]


def _is_a(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


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


_NUMBER: _Rule = (_is_number, "a number")
LONGEST_S = 1e9  # about 30 years
_DURATION: _Rule = (
    lambda value: _is_number(value) and 0 <= value <= LONGEST_S,
    "a number of seconds from 0 to 1e9",
)
_TEXT: _Rule = (_is_a(str), "a text")
_NAME: _Rule = (_is_name, "a name")
_POSITION: _Rule = (_is_position, "a Position or a pair (lat, lon)")
_YES_OR_NO: _Rule = (_is_a(bool), "True or False")

_RULES: dict[str, _Rule] = {
    **dict.fromkeys(
        ("lat", "lon", "heading_deg", "speed_mps", "accuracy_m", "altitude_m", "radius_m",
         "within_m", "near_m", "hysteresis_m"),
        _NUMBER,
    ),
    **dict.fromkeys(
        ("timeout_s", "retry_s", "connect_timeout_s", "expires_in_s", "validity_s", "ttl_s",
         "dwell_s"),
        _DURATION,
    ),
    **dict.fromkeys(("topic", "kind", "text", "where", "uri"), _TEXT),
    **dict.fromkeys(("identity", "name", "client", "group"), _NAME),
    **dict.fromkeys(("moving", "ordered", "inside", "report"), _YES_OR_NO),
    "position": _POSITION,
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
    # Where a name means something else.
    "Client.identity": (
        lambda value: _is_name(value) and len(value.encode()) <= MAX_IDENTITY_BYTES,
        f"a name of at most {MAX_IDENTITY_BYTES} bytes",
    ),
    "on.kind": (_is_a(Kind), "a Kind: write `@client.on(Kind.ALERT)`, or `@client.on()` for all"),
    "tell.to": (
        _is_a(str, Address, Area, type(None)),
        "the name of a client, an Address, an Area, or None with within_m",
    ),
    "alert.to": (
        lambda value: isinstance(value, Area | Address) or _is_position(value),
        "an Area, an Address, a Position or a pair (lat, lon)",
    ),
}  # fmt: skip


def check(method: str, name: str, value: object) -> None:
    """Raise ArgumentError if an argument is not what the method takes."""
    holds, takes = _RULES.get(f"{method}.{name}") or _RULES.get(name) or (None, "")
    if holds is not None and not holds(value):
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        raise ArgumentError(name, f"{method}: {name} takes {takes}, not {shown}")


def checked(method: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a method before it runs, by their names."""
    label = method.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    parameters = inspect.signature(method).parameters
    names = [name for name in parameters if name != "self"]
    optional = {name for name in names if "None" in str(parameters[name].annotation)}
    rest = next((name for name in names if parameters[name].kind.name == "VAR_POSITIONAL"), "")

    def check_all(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        for number, value in enumerate(args[1:]):
            name = names[number] if number < len(names) else rest
            if name == rest:
                check(label, name, [value])
            elif value is not None or name not in optional:
                check(label, name, value)
        for name, value in kwargs.items():
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
