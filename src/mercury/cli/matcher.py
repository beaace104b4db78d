"""`mercury matcher`: matching of what moves, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from mercury.cli import frame
from mercury.config import Settings


def matcher(
    config: frame.ConfigOption = None,
    bus: frame.BusOption = None,
    id: Annotated[str | None, typer.Option(help="Name, unique on the bus")] = None,
    shared: Annotated[
        bool | None,
        typer.Option("--shared/--alone", help="Share the work with other matchers over the bus"),
    ] = None,
    door: Annotated[
        bool | None, typer.Option("--door/--no-door", help="Serve HTTP and websockets, too")
    ] = None,
    door_port: Annotated[int | None, typer.Option(help="TCP port of that")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="TCP port of /metrics, /healthz")] = None,
) -> None:
    """Run a matcher: who is near whom, told as they come and go."""
    settings = frame.settings_for(
        config,
        bus__uri=bus,
        matcher__id=id,
        matcher__shared=shared,
        matcher__door=door,
        door__port=door_port,
        matcher__metrics_port=metrics_port,
    )
    frame.run(_run(settings))


async def _run(settings: Settings) -> None:
    # Here, not above: it takes a second that no other command should wait for.
    from mercury.matcher.service import Matcher
    from mercury.matcher.shared_service import SharedMatcher

    bus = frame.bus_of(settings)
    try:
        door = settings.door if settings.matcher.door else None
        kind = SharedMatcher if settings.matcher.shared else Matcher
        await kind(bus, settings.matcher, door).run()
    finally:
        bus.close()
