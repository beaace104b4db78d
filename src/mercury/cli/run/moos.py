"""`mercury moos`: a MOOS vehicle's mediator, and its way into Mercury."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from mercury.cli.common import command
from mercury.cli.common.positions import position as read_position
from mercury.cli.messages.moos_report import report_json, report_view
from mercury.moos import MoosGateway, bridge_settings, read_moos_file
from mercury.moos.settings import route
from mercury.service.stop_signals import on_stop_signal

_REFRESH_S = 0.5


def moos(
    config: command.ConfigOption = None,
    moos_file: Annotated[
        Path | None, typer.Option(help="Take the block of pMediator in this .moos file")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of this vehicle")] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="Port for the own pShare and the mates", metavar="[HOST:]PORT"),
    ] = None,
    local: Annotated[
        str | None, typer.Option(help="Where the own pShare listens", metavar="HOST:PORT")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(help="Way to a mate; * is for all others", metavar="MATE=HOST:PORT"),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Group of this vehicle")] = None,
    mates: Annotated[str | None, typer.Option(help="Vehicles of the group", metavar="A,B")] = None,
    no_ack_vars: Annotated[
        str | None, typer.Option(help="Variables that are sent once", metavar="A,B")
    ] = None,
    max_tries: Annotated[int | None, typer.Option(help="Send again so often")] = None,
    resend_thresh: Annotated[float | None, typer.Option(help="After so many seconds")] = None,
    adapter: Annotated[
        str | None, typer.Option(help="Connect to Mercury: udp://HOST:PORT", metavar="URI")
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(help="Where it is until it reports itself", metavar="LAT,LON"),
    ] = None,
    seconds: command.ForOption = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Seconds between reports of --json")
    ] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="A report as a line of JSON at times, and at the end")
    ] = False,
) -> None:
    """Bridge a MOOS community to its mates, and to Mercury.

    Acknowledges, sends again and removes doubles as pMediator does, over the datagrams of pShare.
    """
    given: dict[str, object] = {}
    if moos_file is not None:
        given = {f"moos__{key}": value for key, value in read_moos_file(moos_file).items()}
    flags = {
        "vname": name,
        "listen": listen,
        "local": local,
        "routes": dict(map(route, to)) if to else None,
        "group": group,
        "mates": mates,
        "no_ack_vars": no_ack_vars,
        "max_tries": max_tries,
        "resend_thresh": resend_thresh,
        "adapter": adapter,
    }
    given |= {f"moos__{key}": value for key, value in flags.items() if value is not None}
    settings = command.settings_for(config, **given)
    gateway = MoosGateway(
        bridge_settings(settings.moos),
        adapter=settings.moos.adapter,
        position=None if position is None else read_position(position),
        session=command.session_of(settings),
    )
    command.run(_run(gateway, seconds, every_s if as_json else None))


async def _run(gateway: MoosGateway, seconds: float | None, json_every_s: float | None) -> None:
    stop = asyncio.Event()
    on_stop_signal(stop.set)
    await gateway.open()
    host = gateway.settings.listen.host
    command.progress.print(
        f"{gateway.settings.name} listens on {host}:{gateway.port}"
        f" and posts to {gateway.settings.local}",
        markup=False,
        soft_wrap=True,
    )
    try:
        if json_every_s is not None:
            await _wait(stop, seconds, json_every_s, lambda: _print_json(gateway))
        elif command.progress.is_terminal:
            with Live(console=command.progress, transient=True, auto_refresh=False) as live:
                await _wait(
                    stop,
                    seconds,
                    _REFRESH_S,
                    lambda: live.update(report_view(gateway), refresh=True),
                )
        else:
            await _wait(stop, seconds, None, lambda: None)
    finally:
        await gateway.close()
    if json_every_s is not None:
        _print_json(gateway, final=True)
    else:
        Console(highlight=False).print(report_view(gateway))


async def _wait(
    stop: asyncio.Event, seconds: float | None, every_s: float | None, show: Callable[[], None]
) -> None:
    """Show something at times until it is time to end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stop.is_set():
                show()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), every_s)


def _print_json(gateway: MoosGateway, *, final: bool = False) -> None:
    command.print_json({**report_json(gateway), "final": final})
