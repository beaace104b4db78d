"""`mercury client`: a client endpoint with a gateway for local applications."""

from __future__ import annotations

import asyncio
import math
import os
import stat
import sys
from collections.abc import AsyncIterable, Callable
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.messages.describe import message_json, message_line, plain
from mercury.client import Client, MatchStream
from mercury.model.errors import AreaError, ConfigurationError
from mercury.model.filter import Value
from mercury.model.matching import Match, NearSubscription, Publication
from mercury.service.clock import clock_time

Heard = TypeVar("Heard")

_WORDS: dict[str, Value] = {"true": True, "false": False}


def client(
    position: Annotated[str, option("Its first position, in degrees", "LAT,LON")],
    config: command.ConfigOption = None,
    adapter: Annotated[str | None, option("Default udp://127.0.0.1:7400", "URI")] = None,
    identity: Annotated[str | None, option("Name, unique among clients; default random")] = None,
    relay_port: Annotated[
        int | None, command.port("UDP port for local applications, 0 for a free one; default none")
    ] = None,
    group: Annotated[list[str] | None, option("A group it is in; repeatable", "NAME")] = None,
    near: Annotated[
        list[str] | None,
        option("Print what enters or leaves RADIUS metres; repeatable", "TOPIC:RADIUS[:WHERE]"),
    ] = None,
    moving: Annotated[
        list[str] | None,
        option("Publish attributes to those near it; repeatable", "TOPIC:KEY=VALUE,..."),
    ] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Run a client: it reports its position and prints the messages it receives.

    A line `lat,lon[,heading_deg[,speed_mps]]` on standard input is its next position.
    """
    settings = command.settings_for(
        config,
        client__adapter=adapter,
        client__identity=identity,
        client__relay_port=relay_port,
    )
    name = settings.client.identity or f"client-{uuid4().hex[:8]}"
    subscriptions = [read_near(text) for text in near or ()]
    publications = [read_moving(text) for text in moving or ()]
    endpoint = Client(
        settings.client.adapter,
        identity=name,
        position=reading.position(position),
        settings=command.session_of(settings),
        relay_port=settings.client.relay_port,
        mediator=settings.mediator,
        groups=group or [],
    )

    async def work() -> None:
        stop = command.stop_event()
        async with endpoint:
            command.progress.print(f"{name} is connected to {settings.client.adapter}")
            if endpoint.relay is not None:
                at = f"udp://127.0.0.1:{endpoint.relay.port}"
                command.progress.print(f"applications connect to {at}")
            streams = await _declare(endpoint, subscriptions, publications)
            tasks = [
                asyncio.create_task(_show(endpoint, as_json, message_json, message_line)),
                asyncio.create_task(_follow_input(endpoint)),
                *(
                    asyncio.create_task(_show(stream, as_json, _match_json, _match_line))
                    for stream in streams
                ),
            ]

            def stop_if_failed(task: asyncio.Task[None]) -> None:
                if not task.cancelled() and task.exception() is not None:
                    stop.set()

            for task in tasks:
                task.add_done_callback(stop_if_failed)
            await command.wait(stop, seconds)
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):  # such as a closed stdout
                    raise ended

    command.run(work())


async def _show(
    heard: AsyncIterable[Heard],
    as_json: bool,
    to_json: Callable[[Heard], object],
    to_line: Callable[[Heard], str],
) -> None:
    async for one in heard:
        if as_json:
            command.print_json(to_json(one))
        else:
            command.show(to_line(one))


async def _follow_input(endpoint: Client) -> None:
    # Only a pipe is followed: a terminal is for Ctrl-C, and a file or /dev/null has no future.
    if sys.stdin is None or not stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        return
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            lat, lon, *motion = [float(part) for part in line.decode().split(",")]
            heading, speed = (*motion, None, None)[:2]
            endpoint.move(lat, lon, heading_deg=heading, speed_mps=speed)
        except (ValueError, AreaError) as error:
            command.progress.print(f"not a position, ignored: {error}")


def read_near(text: str) -> NearSubscription:
    """Read `TOPIC:RADIUS[:WHERE]`; a filter may hold colons itself."""
    topic, _, rest = text.partition(":")
    radius, _, where = rest.partition(":")
    try:
        radius_m = float(radius)
    except ValueError:
        raise ConfigurationError(f"--near {text} is not TOPIC:RADIUS[:WHERE]") from None
    return NearSubscription("near", topic, radius_m, where=where)


def read_moving(text: str) -> Publication:
    """Read `TOPIC:key=value,…`; numbers are recognised."""
    topic, _, rest = text.partition(":")
    values: dict[str, Value] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise ConfigurationError(f"--moving {text} is not TOPIC:key=value,...")
        values[key.strip()] = _value(value.strip())
    return Publication("moving", topic, values)


async def _declare(
    endpoint: Client, subscriptions: list[NearSubscription], publications: list[Publication]
) -> list[MatchStream]:
    """Declare all; returns the streams to read."""
    for one in publications:
        await endpoint.publish_moving(one.topic, one.values)
    streams = [
        endpoint.near(wanted.topic, radius_m=wanted.radius_m, where=wanted.where)
        for wanted in subscriptions
    ]
    for stream in streams:
        await stream.declared()
        wanted = stream.what
        command.progress.print(f"listening for {wanted.topic} within {wanted.radius_m:g} m")
    return streams


def _match_line(match: Match) -> str:
    values = "".join(f" {key}={value!r}" for key, value in match.values.items())
    return (
        f"{clock_time(match.time_us)} {match.event_type.name:<6}"
        f" {match.publication} [{match.topic}]"
        f" {match.distance_m:.0f} m away at {match.lat:.5f},{match.lon:.5f}{values}"
    )


def _match_json(match: Match) -> dict[str, Any]:
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
