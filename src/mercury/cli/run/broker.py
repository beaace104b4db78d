"""`mercury broker`: one broker, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from mercury.broker import Broker
from mercury.cli.common import command
from mercury.config import Settings


def broker(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: Annotated[str | None, typer.Option(help="Name, unique on the bus")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="TCP port of /metrics, /healthz")] = None,
) -> None:
    """Run a broker: emergencies to alerts, requests, content to subscribers."""
    settings = command.settings_for(
        config, bus__uri=bus, broker__id=id, broker__metrics_port=metrics_port
    )
    command.run(_run(settings))


async def _run(settings: Settings) -> None:
    bus = command.bus_of(settings)
    try:
        await Broker(bus, settings.broker).run()
    finally:
        bus.close()
