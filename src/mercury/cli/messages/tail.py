"""`mercury tail`: prints the messages of bus topics."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import fnmatch
import sys
from typing import Annotated, cast

import typer

from mercury.bus import Bus, Consumer, FromTime, Record, Start
from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.messages.describe import iso_time, message_json, message_line
from mercury.model.errors import ConfigurationError, PacketError
from mercury.service import now_us
from mercury.wire import decode

_BATCH = 512


def tail(
    topics: Annotated[
        list[str], typer.Argument(help="Topics, such as reports, alerts.* or events.emergency")
    ],
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    since: Annotated[str, option("Start at latest, earliest, or an age as 10s, 5m, 2h")] = "latest",
    count: Annotated[int | None, option("End after so many; default no limit", min=1)] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print the messages of bus topics as they arrive, one a line."""
    settings = command.settings_for(config, bus__uri=bus)
    start = _start(since)
    command.require_bus(settings)

    async def work() -> None:
        left = sys.maxsize if count is None else count
        with (
            contextlib.closing(command.bus_of(settings)) as opened,
            contextlib.closing(_subscribe(opened, topics, start)) as consumer,
            contextlib.suppress(TimeoutError),
        ):
            async with asyncio.timeout(seconds):
                while left:
                    for record in await consumer.read(min(left, _BATCH)):
                        left -= _show(record, as_json)

    command.run(work())


def _subscribe(bus: Bus, topics: list[str], start: Start) -> Consumer:
    """Subscribe to topics; warns of those that do not exist yet."""
    known = sorted(bus.topics())
    consumer = bus.subscribe(topics, start=start)
    for topic in [topic for topic in topics if not fnmatch.filter(known, topic)]:
        near = ", ".join(difflib.get_close_matches(topic, known, cutoff=0.4) or known or ["none"])
        command.progress.print(f"there is no topic {topic} yet, waiting for it; there is {near}")
    return consumer


def _start(since: str) -> Start:
    if since in ("latest", "earliest"):
        return cast("Start", since)
    try:
        return FromTime(now_us() - int(reading.length_s(since, "--since") * 1e6))
    except ConfigurationError:
        raise ConfigurationError(
            f"--since takes latest, earliest or an age as 5m, not {since!r}"
        ) from None


def _show(record: Record, as_json: bool) -> bool:
    """Print a record; returns whether it was a message."""
    try:
        message = decode(record.value)
    except PacketError as error:
        command.progress.print(f"{record.topic} {record.offset}: no message ({error.reason})")
        return False
    if as_json:
        command.print_json(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "appended": iso_time(record.timestamp_us),
                "key": record.key.decode("utf-8", "backslashreplace"),
                "message": message_json(message),
            }
        )
    else:
        command.show(f"{record.topic}: {message_line(message)} ({message.id})")
    return True
