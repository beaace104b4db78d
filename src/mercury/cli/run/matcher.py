"""`mercury matcher`: matching of what moves, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from mercury.cli.common import command


def matcher(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: command.IdOption = None,
    shared: Annotated[
        bool | None,
        typer.Option("--shared/--alone", help="Share the work with other matchers over the bus"),
    ] = None,
    gateway: Annotated[
        bool | None, typer.Option("--gateway/--no-gateway", help="Serve HTTP and websockets, too")
    ] = None,
    gateway_port: Annotated[int | None, typer.Option(help="TCP port of that")] = None,
    metrics_port: command.MetricsPortOption = None,
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
    # Here, not above: it takes a second that no other command should wait for.
    from mercury.matcher.service import Matcher
    from mercury.matcher.shared_service import SharedMatcher

    opened = settings.gateway if settings.matcher.gateway else None
    kind = SharedMatcher if settings.matcher.shared else Matcher
    command.serve(settings, lambda bus: kind(bus, settings.matcher, opened))
