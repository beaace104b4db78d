"""`mercury adapter`: one adapter, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from mercury.adapter import Adapter
from mercury.cli.common import command
from mercury.cli.common.positions import geojson_area
from mercury.config import Settings


def adapter(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: Annotated[str | None, typer.Option(help="Name, unique on the bus")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="UDP port; 0 takes a free one")] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Area served: GeoJSON file or text", metavar="GEOJSON")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option(help="TCP port of /metrics, /healthz")] = None,
) -> None:
    """Run an adapter: sessions with clients, who is where, fan-out to areas."""
    settings = command.settings_for(
        config,
        bus__uri=bus,
        adapter__id=id,
        adapter__host=host,
        adapter__port=port,
        adapter__coverage=coverage,
        adapter__metrics_port=metrics_port,
    )
    command.run(_run(settings))


async def _run(settings: Settings) -> None:
    bus = command.bus_of(settings)
    try:
        text = settings.adapter.coverage
        coverage = None if text is None else geojson_area(text, "adapter.coverage")
        session = command.session_of(settings)
        await Adapter(bus, settings.adapter, session, coverage, settings.mediator).run()
    finally:
        bus.close()
