"""`mercury adapter`: one adapter, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from mercury.adapter import Adapter
from mercury.cli.common import command
from mercury.cli.common.positions import geojson_area


def adapter(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: command.IdOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="UDP port; 0 takes a free one")] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Area served: GeoJSON file or text", metavar="GEOJSON")
    ] = None,
    metrics_port: command.MetricsPortOption = None,
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
    text = settings.adapter.coverage
    area = None if text is None else geojson_area(text, "adapter.coverage")
    session = command.session_of(settings)
    command.serve(
        settings, lambda bus: Adapter(bus, settings.adapter, session, area, settings.mediator)
    )
