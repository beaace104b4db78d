"""The pipeline as a service: Spark in this process, its jobs, their health."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mercury.bus import Bus
from mercury.config.settings import PipelineSettings
from mercury.detection import CongestionRule, KindRule
from mercury.model.errors import BusError, ConfigurationError, JobFailedError
from mercury.model.message import Address
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.congestion_job import CongestionJob
from mercury.pipeline.detection.core_job import CoreJob
from mercury.pipeline.detection.event_job import EventJob
from mercury.pipeline.folders import check_writable
from mercury.pipeline.history.job import HistoryJob
from mercury.pipeline.history.journal import locked
from mercury.pipeline.ledger.job import NAME as LEDGER_POOL
from mercury.pipeline.ledger.job import LedgerJob
from mercury.pipeline.spark.query_listener import QueryListener, end_session, listener_of
from mercury.pipeline.spark.session import DETAILS, first_line, start_session
from mercury.pipeline.spark.sources import spark_settings
from mercury.pipeline.spark.startup import class_archive
from mercury.pipeline.spark.startup.first_batch import first_batch
from mercury.service import Service, Statistics, now, now_us

log = logging.getLogger(__name__)

_TICK_S = 0.2
_FORGET_S = 600.0
_FINISH_S = 8.0
_CALM_S = 60.0
_SILENT_S = 10.0
# What a call of a JVM that was killed raises.
_GONE = (Py4JError, ConnectionError)


class Pipeline(Service):
    """Runs the streaming jobs until it is stopped."""

    part = "pipeline"

    def __init__(
        self,
        bus: Bus,
        bus_uri: str,
        settings: PipelineSettings,
        rules: Iterable[KindRule],
        congestion: CongestionRule | None = None,
    ) -> None:
        super().__init__(bus, Address.service(settings.id), metrics=settings.metrics)
        self.settings = settings
        self._bus_uri = bus_uri
        self._rules = tuple(rules)
        self._congestion = congestion
        self._spark: SparkSession | None = None
        self._sink: AlertsSink | None = None
        self._jobs: list[CoreJob] = []
        self._history: HistoryJob | None = None
        self.stage = ""  # of the start
        self._ledger: LedgerJob | None = None
        # A thread of its own: Spark's scheduler pools are per thread.
        self._ledger_thread = ThreadPoolExecutor(1, "ledger")
        self._starting = ThreadPoolExecutor(1, "starting")
        self._queries: list[Future[StreamingQuery]] = []
        self._listener = QueryListener()
        self._leaving = threading.Event()
        self._held = ExitStack()  # the lock of the checkpoint
        self._tended_at: float | None = None  # when Spark last answered

    def statistics(self) -> Statistics:
        counters = sum((job.counters for job in self._jobs), Counter[str]())
        dropped = sum((job.dropped for job in self._jobs), Counter[str]())
        if self._history is not None:
            counters["history_rows"] = self._history.counters.total()
            dropped.update({f"history-{why}": n for why, n in self._history.rejected.items()})
        gauges: dict[str, float] = {}
        if self._ledger is not None:
            counters.update(self._ledger.counters)
            gauges["ledger_waiting"] = self._ledger.waiting
        for job in self._jobs:
            state = job.state
            gauges |= {f"{job.name}_lag": state.lag, f"{job.name}_position": state.position}
        return Statistics(gauges=gauges, counters=dict(counters), dropped=dropped)

    def trouble(self) -> str:
        silent_s = 0.0 if self._tended_at is None else now() - self._tended_at
        return f"Spark has not answered for {silent_s:.0f} s" if silent_s > _SILENT_S else ""

    async def _start(self) -> None:
        try:
            await self._start_jobs()
        except _GONE as error:
            raise self._gone(error) from error

    async def _start_jobs(self) -> None:
        checkpoint = self._checkpoint()
        history = self._history_folder() if self.settings.history else None
        for folder in filter(None, (checkpoint, history)):
            check_writable(folder)
        refusal = f"another pipeline works with {checkpoint}"
        self._held.enter_context(locked(checkpoint, self.part, refusal=refusal))
        class_list = checkpoint / "spark-classes.txt"
        log.info("Spark is starting (%s)", self.settings.spark_master)
        self.stage = "archives for Java"
        conf = await asyncio.to_thread(spark_settings, self._bus_uri)
        self.stage = "Java and Spark's session"
        self._spark = await asyncio.to_thread(
            start_session,
            self.settings.spark_master,
            settings=conf | self.settings.spark_conf,
            log_file=self.spark_log,
            class_list=class_list if self.settings.share_classes else None,
        )
        self._listener = listener_of(self._spark)
        log.info("Spark is up; the jobs are starting")
        sink = await asyncio.to_thread(AlertsSink, self.bus, now_us(), self.settings.id)
        self._sink = sink
        # One after the other: parallel first batches would delay each other.
        if not await self._begin(EventJob(self._rules, sink, checkpoint)):
            await asyncio.to_thread(first_batch, self._spark)
        if self._congestion is not None:
            await self._begin(CongestionJob(self._congestion, sink, checkpoint))
        if history is not None:
            interval_s = self.settings.history_interval_s
            self.stage = "job history"
            self._history = HistoryJob(history, checkpoint, interval_s=interval_s)
            await self._start_query(self._history.start)
            log.info("job history runs")
            if self.settings.ledger:
                # On one machine it uses one core, and leaves the others to detection.
                tasks = 1 if self.settings.spark_master.startswith("local") else None
                self._ledger = LedgerJob(history, tasks=tasks)
                self._ledger.start()
                self.spawn(self._keep_ledger(self._ledger, self._history))
        self.spawn(self._watch())
        if self.settings.share_classes:
            self.spawn(class_archive.make_later(self._spark, class_list, _CALM_S))

    async def _begin(self, job: CoreJob) -> bool:
        """Start a job, and wait until it has judged the backlog; returns whether there was any."""
        self.stage = f"job {job.name}"
        self._jobs.append(job)
        await self._start_query(job.start)
        found = await asyncio.to_thread(job.await_first_look)
        log.info("job %s runs", job.name)
        return found

    async def _start_query(self, start: Callable[[SparkSession, str], StreamingQuery]) -> None:
        """Start a query; if we are stopped meanwhile, `_finish` stops it once it has started."""
        assert self._spark is not None
        query = self._starting.submit(start, self._spark, self._bus_uri)
        self._queries.append(query)
        await asyncio.wrap_future(query)

    @property
    def spark_log(self) -> Path:
        """Spark's and its workers' log."""
        return self._checkpoint() / "spark.log"

    def _checkpoint(self) -> Path:
        return self.settings.checkpoint or self._beside_bus("pipeline")

    def _history_folder(self) -> Path:
        return self.settings.history_folder or self._beside_bus("history")

    def _beside_bus(self, what: str) -> Path:
        scheme, _, path = self._bus_uri.partition(":")
        if scheme != "embedded":
            raise ConfigurationError(
                "with this bus the pipeline needs the settings of its folders:"
                " pipeline.checkpoint and pipeline.history_folder"
            )
        return Path(f"{path}-{what}")

    async def _stop(self) -> None:
        try:
            if self._ledger is not None:
                await asyncio.to_thread(self._end_ledger)
            await asyncio.to_thread(_finish, self._queries)
            if self._history is not None:
                await asyncio.to_thread(self._history.stop)
            if self._spark is not None:
                await asyncio.to_thread(end_session, self._spark)
        except _GONE as error:
            log.info("Spark was gone before it was stopped: %s", error)
        finally:
            self._held.close()

    async def _watch(self) -> None:
        """Call the jobs' ticks, and raise if a job failed; a restart may succeed."""
        assert self._sink is not None
        assert self._spark is not None
        forget_at = now() + _FORGET_S
        try:
            while True:
                self._tended_at = now()
                await asyncio.sleep(_TICK_S)
                if self._listener.failed_query is not None:
                    raise self._ended(self._listener.failed_query, self._listener.failure)
                await asyncio.to_thread(_ping, self._spark)
                for job in self._jobs:
                    await asyncio.to_thread(job.tick)
                    self.health.backlog(job.name, now(), job.state.lag)
                if now() >= forget_at:
                    forget_at = now() + _FORGET_S
                    self._sink.forget(now_us())
        except _GONE as error:
            raise self._gone(error) from error
        except BusError as error:
            raise JobFailedError(f"the bus does not take what was found: {error}") from error

    async def _keep_ledger(self, ledger: LedgerJob, history: HistoryJob) -> None:
        """Enter finished messages; raises if the sums are inconsistent."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.ledger_interval_s)
            try:
                await loop.run_in_executor(self._ledger_thread, self._enter, ledger, history)
            except JobFailedError:
                raise  # it explains itself
            except Exception as error:
                if self._leaving.is_set():
                    return  # interrupted by the stop
                raise self._ended(LEDGER_POOL, first_line(error)) from error

    def _gone(self, error: Exception) -> JobFailedError:
        DETAILS.error("Spark does not answer", exc_info=error)
        return JobFailedError(f"Spark does not answer; the details are in {self.spark_log}")

    def _ended(self, job: str, why: str) -> JobFailedError:
        return JobFailedError(f"the {job} job ended: {why}; the details are in {self.spark_log}")

    def _enter(self, ledger: LedgerJob, history: HistoryJob) -> None:
        assert self._spark is not None
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", LEDGER_POOL)
        self._spark.sparkContext.setJobGroup(LEDGER_POOL, "the ledger", interruptOnCancel=True)
        while not self._leaving.is_set():
            done = ledger.run(self._spark, history.stored_until_us())
            if not done.messages:
                return

    def _end_ledger(self) -> None:
        """Stop the ledger; an interrupted run is repeated by the next."""
        assert self._ledger is not None
        self._leaving.set()
        if self._spark is not None:
            self._spark.sparkContext.cancelJobGroup(LEDGER_POOL)
        self._ledger_thread.shutdown(wait=True, cancel_futures=True)
        self._ledger.stop()


def _finish(queries: Iterable[Future[StreamingQuery]]) -> None:
    """Stop between batches: an interrupted one is repeated, and logs a long traceback."""
    deadline = now() + _FINISH_S
    for starting in queries:
        try:
            query = starting.result(max(0.0, deadline - now()))
        except (PySparkException, Py4JError, TimeoutError):
            continue  # its error was raised already
        while query.isActive and now() < deadline:
            status = query.status
            if not (status["isTriggerActive"] and status["isDataAvailable"]):
                break
            time.sleep(0.02)
        query.stop()


def _ping(spark: SparkSession) -> None:
    """Raises if the JVM was killed: it reports nothing then."""
    if spark.sparkContext._jsc.sc().isStopped():
        raise Py4JError("its context was stopped")
