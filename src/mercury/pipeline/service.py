"""The pipeline as a service: Spark in this process, its jobs, their health."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mercury.bus import Bus
from mercury.config.settings import PipelineSettings
from mercury.detection import KindRule
from mercury.model.errors import PipelineError
from mercury.model.message import Address
from mercury.pipeline.alerts_sink import AlertsSink
from mercury.pipeline.detection_job import DetectionJob
from mercury.pipeline.schemas import RECORD
from mercury.pipeline.session import start_session
from mercury.pipeline.transforms import events
from mercury.service import Service, Statistics, now_us

log = logging.getLogger(__name__)

_TICK_S = 0.2
_FORGET_S = 600.0


class Pipeline(Service):
    """Runs the streaming jobs until it is told to stop."""

    part = "pipeline"

    def __init__(
        self, bus: Bus, bus_uri: str, settings: PipelineSettings, rules: Iterable[KindRule]
    ) -> None:
        super().__init__(bus, Address.service(settings.id), metrics_port=settings.metrics_port)
        self.settings = settings
        self._bus_uri = bus_uri
        self._rules = tuple(rules)
        self._spark: SparkSession | None = None
        self._job: DetectionJob | None = None
        self._query: StreamingQuery | None = None

    def statistics(self) -> Statistics:
        job = self._job
        return Statistics(
            gauges={},
            counters=dict(job.counters) if job else {},
            dropped=job.dropped if job else Counter(),
        )

    async def _start(self) -> None:
        log.info("Spark is starting (%s)", self.settings.spark_master)
        spark = await asyncio.to_thread(start_session, self.settings.spark_master)
        self._spark = spark
        log.info("Spark is up; the jobs are starting")
        await asyncio.to_thread(_warm_up, spark)
        sink = await asyncio.to_thread(AlertsSink, self.bus, now_us(), self.settings.id)
        self._job = DetectionJob(self._rules, sink, self._checkpoint(), now_us)
        self._query = await asyncio.to_thread(self._job.start, spark, self._bus_uri)
        self.spawn(self._watch())

    def _checkpoint(self) -> Path:
        if self.settings.checkpoint is not None:
            return self.settings.checkpoint
        scheme, _, path = self._bus_uri.partition(":")
        if scheme != "sqlite":
            raise PipelineError("with this bus the pipeline needs a checkpoint folder")
        return Path(f"{path}-pipeline")

    async def _stop(self) -> None:
        if self._query is not None:
            await asyncio.to_thread(self._query.stop)
        if self._spark is not None:
            await asyncio.to_thread(self._spark.stop)

    async def _watch(self) -> None:
        """Judge ended intervals, and fail with the query."""
        assert self._query is not None
        assert self._job is not None
        while True:
            await asyncio.sleep(_TICK_S)
            if not self._query.isActive:
                raise PipelineError(f"the detection query ended: {self._query.exception()}")
            await asyncio.to_thread(self._job.tick)


def _warm_up(spark: SparkSession) -> None:
    """Do once what a batch does: workers start, libraries load, code is compiled."""
    row = ("events.none", 0, 1, 0, b"", None, b"")
    events(spark.createDataFrame([row, row], RECORD)).toArrow()
