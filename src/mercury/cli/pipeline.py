"""`mercury pipeline`: the data pipeline on Spark, until it is stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mercury.cli import frame
from mercury.config import Settings
from mercury.model.errors import ConfigurationError, JobFailedError, PipelineError

_TRY_AGAIN = 75  # EX_TEMPFAIL: whoever supervises should start it again


def pipeline(
    config: frame.ConfigOption = None,
    bus: frame.BusOption = None,
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
    metrics_port: Annotated[int | None, typer.Option(help="TCP port of /metrics, /healthz")] = None,
) -> None:
    """Run the pipeline: what is only visible in many messages is found by Spark."""
    settings = frame.settings_for(
        config,
        bus__uri=bus,
        pipeline__spark_master=spark_master,
        pipeline__spark_conf=_conf(spark_conf),
        pipeline__checkpoint=checkpoint,
        pipeline__metrics_port=metrics_port,
    )
    try:
        frame.run(_run(settings))
    except JobFailedError as error:
        frame.fail(str(error), _TRY_AGAIN)


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
    bus = frame.bus_of(settings)
    service = Pipeline(
        bus,
        settings.bus.uri,
        settings.pipeline,
        settings.detection.rules(),
        settings.detection.congestion_rule(),
    )
    try:
        await service.run()
    finally:
        bus.close()
    if not service.started:
        os._exit(0)  # a Spark that is half started would be waited for; its JVM ends with us
