"""`mercury matcher`: matching of what moves, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from mercury.cli.common import command
from mercury.config import Settings


def matcher(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: Annotated[str | None, typer.Option(help="Name, unique on the bus")] = None,
    shared: Annotated[
        bool | None,
        typer.Option("--shared/--alone", help="Share the work with other matchers over the bus"),
    ] = None,
    gateway: Annotated[
        bool | None, typer.Option("--gateway/--no-gateway", help="Serve HTTP and websockets, too")
    ] = None,
    gateway_port: Annotated[int | None, typer.Option(help="TCP port of that")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="TCP port of /metrics, /healthz")] = None,
) -> None:
    """Run a matcher: who is near whom, told as they come and go."""
    settings = command.settings_for(
        config,
        bus__uri=bus,
        matcher__id=id,
        matcher__shared=shared,
        matcher__gateway=gateway,
        gateway__port=gateway_port,
        matcher__metrics_port=metrics_port,
    )
    command.run(_run(settings))


async def _run(settings: Settings) -> None:
    # Here, not above: it takes a second that no other command should wait for.
    from mercury.matcher.service import Matcher
    from mercury.matcher.shared_service import SharedMatcher

    bus = command.bus_of(settings)
    try:
        gateway = settings.gateway if settings.matcher.gateway else None
        kind = SharedMatcher if settings.matcher.shared else Matcher
        await kind(bus, settings.matcher, gateway).run()
    finally:
        bus.close()
