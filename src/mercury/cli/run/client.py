"""`mercury client`: a client endpoint with a gateway for local applications."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from functools import partial
from typing import Annotated
from uuid import uuid4

import typer

from mercury.cli.common import command
from mercury.cli.common.positions import position as read_position
from mercury.cli.messages.describe import message_json, message_line
from mercury.cli.run.near import Moving, NearOption, begin, listen, read_moving, read_near
from mercury.client import Client
from mercury.config import Settings
from mercury.model.area import Position
from mercury.model.errors import AreaError
from mercury.service.stop_signals import on_stop_signal


def client(
    position: Annotated[str, typer.Option(help="Where it is", metavar="LAT,LON")],
    config: command.ConfigOption = None,
    adapter: Annotated[str | None, typer.Option(help="udp://HOST:PORT", metavar="URI")] = None,
    identity: Annotated[str | None, typer.Option(help="Name, unique among clients")] = None,
    relay_port: Annotated[
        int | None, typer.Option(help="Loopback port for local applications; 0 takes a free one")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A group it is in; several times", metavar="NAME")
    ] = None,
    near: Annotated[
        list[str] | None,
        typer.Option(
            help="Show what comes near and leaves; several times",
            metavar="TOPIC:RADIUS[:WHERE]",
        ),
    ] = None,
    moving: Annotated[
        list[str] | None,
        typer.Option(
            help="Publish what it is, for others near it; several times",
            metavar="TOPIC:KEY=VALUE,...",
        ),
    ] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Run a client endpoint and show what it hears.

    Lines `lat,lon[,heading_deg[,speed_mps]]` on standard input move it.
    """
    settings = command.settings_for(
        config,
        client__adapter=adapter,
        client__identity=identity,
        client__relay_port=relay_port,
    )
    near_options = [read_near(text) for text in near or ()]
    publications = [read_moving(text) for text in moving or ()]
    place = read_position(position)
    command.run(_run(settings, place, group or [], near_options, publications, seconds, as_json))


async def _run(
    settings: Settings,
    position: Position,
    groups: list[str],
    near_options: list[NearOption],
    publications: list[Moving],
    seconds: float | None,
    as_json: bool,
) -> None:
    identity = settings.client.identity or f"client-{uuid4().hex[:8]}"
    endpoint = Client(
        settings.client.adapter,
        identity=identity,
        position=position,
        settings=command.session_of(settings),
        relay_port=settings.client.relay_port,
        mediator=settings.mediator,
        groups=groups,
    )
    stop = asyncio.Event()
    on_stop_signal(stop.set)
    async with endpoint:
        command.progress.print(f"{identity} is connected to {settings.client.adapter}")
        if endpoint.relay is not None:
            command.progress.print(f"applications connect to udp://127.0.0.1:{endpoint.relay.port}")
        streams = await begin(endpoint, near_options, publications)
        for stream in streams:
            wanted = stream.what
            command.progress.print(f"listening for {wanted.topic} within {wanted.radius_m:g} m")
        tasks = [
            asyncio.create_task(_listen(endpoint, as_json)),
            asyncio.create_task(_follow_input(endpoint)),
            *(asyncio.create_task(listen(stream, as_json)) for stream in streams),
        ]
        for task in tasks:
            task.add_done_callback(partial(_stop_if_failed, stop))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):  # such as that nobody reads what is printed
                raise ended


def _stop_if_failed(stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        stop.set()


async def _listen(endpoint: Client, as_json: bool) -> None:
    async for message in endpoint:
        if as_json:
            command.print_json(message_json(message))
        else:
            print(message_line(message), flush=True)


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
            command.progress.print(f"not a position, ignored: {error}", markup=False)
