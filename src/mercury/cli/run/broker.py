"""`mercury broker`: one broker, until it is stopped."""

from __future__ import annotations

from mercury.broker import Broker
from mercury.cli.common import command


def broker(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: command.IdOption = None,
    metrics_port: command.MetricsPortOption = None,
) -> None:
    """Run a broker: emergencies to alerts, requests, content to subscribers."""
    settings = command.settings_for(
        config, bus__uri=bus, broker__id=id, broker__metrics_port=metrics_port
    )
    command.serve(settings, lambda bus: Broker(bus, settings.broker))
