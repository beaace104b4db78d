"""`mercury adapter`, `broker`, `matcher`, `pipeline`: one part, until it is stopped.

What a part needs is imported when it is run: the others should not wait for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.cli.data.stored_tables import MasterOption
from mercury.config import Settings
from mercury.model.errors import ConfigurationError, JobFailedError

if TYPE_CHECKING:
    from mercury.pipeline.service import Pipeline

_TRY_AGAIN = 75  # EX_TEMPFAIL: a supervisor should start it again


def adapter(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: Annotated[str | None, option("Name, unique on the bus; default adapter-1")] = None,
    host: Annotated[str | None, option("Address to listen on; default 127.0.0.1")] = None,
    port: Annotated[int | None, command.port("UDP port, 0 for a free one; default 7400")] = None,
    coverage: Annotated[
        str | None, option("Area served, GeoJSON or a file of it; default all", "GEOJSON")
    ] = None,
    metrics_port: command.MetricsPortOption = None,
) -> None:
    """Run an adapter: it keeps the clients' sessions over UDP and delivers alerts to areas."""
    from mercury.adapter import Adapter

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
    area = None if text is None else reading.geojson_area(text, "adapter.coverage")
    session = command.session_of(settings)
    command.serve(
        settings, lambda bus: Adapter(bus, settings.adapter, session, area, settings.mediator)
    )


def broker(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: Annotated[str | None, option("Name, unique on the bus; default broker-1")] = None,
    metrics_port: command.MetricsPortOption = None,
) -> None:
    """Run a broker: it turns emergencies into alerts and routes requests and content."""
    from mercury.broker import Broker

    settings = command.settings_for(
        config, bus__uri=bus, broker__id=id, broker__metrics_port=metrics_port
    )
    command.serve(settings, lambda bus: Broker(bus, settings.broker))


def matcher(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    id: Annotated[str | None, option("Name, unique on the bus; default matcher-1")] = None,
    shared: Annotated[
        bool | None,
        option("Share the work with other matchers; default alone", names="--shared/--alone"),
    ] = None,
    gateway: Annotated[bool | None, option("Serve HTTP and WebSocket; default yes")] = None,
    gateway_port: Annotated[int | None, command.port("Its TCP port; default 7480")] = None,
    metrics_port: command.MetricsPortOption = None,
) -> None:
    """Run a matcher: it notifies moving subscribers of publications near them."""
    settings = command.settings_for(
        config,
        bus__uri=bus,
        matcher__id=id,
        matcher__shared=shared,
        matcher__gateway=gateway,
        gateway__port=gateway_port,
        matcher__metrics_port=metrics_port,
    )
    from mercury.matcher.service import Matcher, SharedMatcher

    opened = settings.gateway if settings.matcher.gateway else None
    kind = SharedMatcher if settings.matcher.shared else Matcher
    command.serve(settings, lambda bus: kind(bus, settings.matcher, opened))


def pipeline(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    spark_master: MasterOption = None,
    spark_conf: Annotated[
        list[str] | None, option("A setting of Spark; repeat it for several", "KEY=VALUE")
    ] = None,
    checkpoint: Annotated[
        Path | None, option("Folder of the jobs' checkpoints; default beside the bus file")
    ] = None,
    metrics_port: command.MetricsPortOption = None,
) -> None:
    """Run the Spark jobs: detect collisions, jams and slow traffic, and store history."""
    settings = command.settings_for(
        config,
        bus__uri=bus,
        pipeline__spark_master=spark_master,
        pipeline__spark_conf=_conf(spark_conf),
        pipeline__checkpoint=checkpoint,
        pipeline__metrics_port=metrics_port,
    )
    try:
        command.run(_run(settings))
    except JobFailedError as error:
        command.fail(str(error), _TRY_AGAIN)


def _conf(pairs: list[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    for pair in pairs:
        if "=" not in pair:
            raise ConfigurationError(f"--spark-conf takes KEY=VALUE, not {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)


async def _run(settings: Settings) -> None:
    from mercury.pipeline.service import Pipeline

    bus = command.bus_of(settings)
    service = Pipeline(
        bus,
        settings.bus.uri,
        settings.pipeline,
        settings.detection.rules(),
        settings.detection.congestion_rule(),
    )
    shown = asyncio.create_task(_show_start(service))
    try:
        await service.run()
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)
        bus.close()
    if not service.has_started.is_set():
        os._exit(0)  # a Spark that is half started would be waited for; its JVM ends with us


async def _show_start(service: Pipeline) -> None:
    """Show the progress of the start on a terminal; elsewhere it is logged."""
    if sys.stdin.isatty():
        with waiting("the pipeline is starting", lambda: service.stage):
            await service.has_started.wait()
