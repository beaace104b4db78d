"""`mercury pipeline`: the data pipeline on Spark, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mercury.cli.common import command
from mercury.cli.common.spinner import waiting
from mercury.config import Settings
from mercury.model.errors import ConfigurationError, JobFailedError, PipelineError

if TYPE_CHECKING:
    from mercury.pipeline.service import Pipeline

_TRY_AGAIN = 75  # EX_TEMPFAIL: whoever supervises should start it again


def pipeline(
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    spark_master: Annotated[
        str | None, typer.Option(help="local[N], spark://HOST:PORT, yarn, k8s://…", metavar="URL")
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(help="A setting of Spark; may be repeated", metavar="KEY=VALUE"),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for the jobs' state; default beside the bus file")
    ] = None,
    metrics_port: command.MetricsPortOption = None,
) -> None:
    """Run the pipeline: what is only visible in many messages is found by Spark."""
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
    try:
        from mercury.pipeline.service import Pipeline
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"the pipeline needs {error.name}: pip install 'mercury-messaging[pipeline]'"
        ) from None
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
    if not service.started:
        os._exit(0)  # a Spark that is half started would be waited for; its JVM ends with us


async def _show_start(service: Pipeline) -> None:
    """Show how far it is to who sits there; elsewhere the log tells."""
    if sys.stdin.isatty():
        with waiting("the pipeline is starting", lambda: service.stage):
            await service.has_started.wait()
