"""What moves, on the command line: publications, subscriptions and what comes of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mercury.cli.common import command
from mercury.cli.messages.describe import plain
from mercury.client import Client, MatchStream
from mercury.model.errors import ConfigurationError
from mercury.model.filter import Value
from mercury.model.matching import Match, NearSubscription, Publication
from mercury.service.clock import clock_time

_WORDS: dict[str, Value] = {"true": True, "false": False}


class NearOption(NamedTuple):
    """What `--near` says."""

    topic: str
    radius_m: float
    where: str


class Moving(NamedTuple):
    """What `--moving` says."""

    topic: str
    values: dict[str, Value]


def read_near(text: str) -> NearOption:
    """Read `TOPIC:RADIUS[:WHERE]`; a filter may hold colons itself."""
    topic, _, rest = text.partition(":")
    radius, _, where = rest.partition(":")
    try:
        wanted = NearOption(topic, float(radius), where)
    except ValueError:
        raise ConfigurationError(f"--near {text} is not TOPIC:RADIUS[:WHERE]") from None
    NearSubscription(
        "near", wanted.topic, wanted.radius_m, where=wanted.where
    )  # or says what is wrong
    return wanted


def read_moving(text: str) -> Moving:
    """Read `TOPIC:key=value,…`; what looks like a number is one."""
    topic, _, rest = text.partition(":")
    values: dict[str, Value] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise ConfigurationError(f"--moving {text} is not TOPIC:key=value,...")
        values[key.strip()] = _value(value.strip())
    Publication("moving", topic, values)
    return Moving(topic, values)


async def begin(
    endpoint: Client, near_options: list[NearOption], moving: list[Moving]
) -> list[MatchStream]:
    """Declare it all; returns what is to be listened to."""
    for topic, values in moving:
        await endpoint.publish(topic, values, moving=True)
    streams = [
        endpoint.near(wanted.topic, radius_m=wanted.radius_m, where=wanted.where)
        for wanted in near_options
    ]
    for stream in streams:
        await stream.declared()
    return streams


async def listen(stream: MatchStream, as_json: bool) -> None:
    """Show what happens."""
    async for match in stream:
        if as_json:
            command.print_json(match_json(match))
        else:
            print(match_line(match), flush=True)


def match_line(match: Match) -> str:
    """A match in a line."""
    values = "".join(f" {key}={value!r}" for key, value in match.values.items())
    return (
        f"{clock_time(match.time_us)} {match.event_type.name:<6}"
        f" {match.publication} [{match.topic}]"
        f" {match.distance_m:.0f} m away at {match.lat:.5f},{match.lon:.5f}{values}"
    )


def match_json(match: Match) -> dict[str, Any]:
    """A match as plain values, named as the gateway names them."""
    return {
        "event": match.event_type.name.lower(),
        "reason": match.reason.name.lower(),
        "subscription": match.subscription,
        "publication": match.publication,
        "topic": match.topic,
        "values": plain(dict(match.values)),
        "lat": match.lat,
        "lon": match.lon,
        "distance_m": round(match.distance_m, 3) if math.isfinite(match.distance_m) else None,
        "time_us": match.time_us,
    }


def _value(text: str) -> Value:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("\"'")
