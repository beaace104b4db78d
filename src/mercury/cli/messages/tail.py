"""`mercury tail`: what goes over the bus."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, cast

import typer

from mercury.bus import FromTime, Start
from mercury.cli.common import command, times
from mercury.cli.messages.describe import iso_time, message_json, message_line
from mercury.config import Settings
from mercury.model.errors import ConfigurationError, PacketError
from mercury.service import now_us
from mercury.wire import decode


def tail(
    topics: Annotated[
        list[str], typer.Argument(help="Topics, such as reports, alerts.* or events.emergency")
    ],
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    since: Annotated[
        str, typer.Option(help="latest, earliest, or an age such as 10s, 5m, 2h")
    ] = "latest",
    count: Annotated[int | None, typer.Option(min=1, help="End after so many")] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Show the messages of bus topics as they come; stdout can be piped on."""
    settings = command.settings_for(config, bus__uri=bus)
    command.run(_run(settings, topics, _start(since), count, seconds, as_json))


def _start(since: str) -> Start:
    if since in ("latest", "earliest"):
        return cast("Start", since)
    try:
        return FromTime(now_us() - int(times.length_s(since, "--since") * 1e6))
    except ConfigurationError:
        raise ConfigurationError(
            f"--since takes latest, earliest or an age as 5m, not {since!r}"
        ) from None


async def _run(
    settings: Settings,
    topics: list[str],
    start: Start,
    count: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    command.require_bus(settings)
    bus = command.bus_of(settings)
    consumer = bus.subscribe(topics, start=start)
    left = count if count is not None else -1
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while left != 0:
                    for record in await consumer.read():
                        try:
                            message = decode(record.value)
                        except PacketError as error:
                            command.progress.print(
                                f"{record.topic} {record.offset}: no message ({error.reason})"
                            )
                            continue
                        if as_json:
                            command.print_json(
                                {
                                    "topic": record.topic,
                                    "partition": record.partition,
                                    "offset": record.offset,
                                    "appended": iso_time(record.timestamp_us),
                                    "key": record.key.decode("utf-8", "replace"),
                                    "message": message_json(message),
                                }
                            )
                        else:
                            print(f"{record.topic}: {message_line(message)}", flush=True)
                        left -= 1
                        if left == 0:
                            break
    finally:
        consumer.close()
        bus.close()
