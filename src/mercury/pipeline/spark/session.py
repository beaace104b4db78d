"""The Spark session, set up for short batches, or an error that says what is missing."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from mercury.java.archives import cache_folder
from mercury.java.runtime import find_java
from mercury.model.errors import PipelineError
from mercury.pipeline.spark import local_files
from mercury.pipeline.spark.embedded_source import EmbeddedSource
from mercury.pipeline.spark.startup import class_archive
from mercury.pipeline.spark.startup.worker_home import use_installed_spark

_CLASS_PATH = "spark.driver.extraClassPath"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # in the environment of what spark-submit starts
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOG_BYTES = 10_000_000
DETAILS = logging.getLogger("py4j")  # for long messages: goes to Spark's log file

# Against Spark's defaults: micro-batches are of a few records.
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How often an idle query reports: intervals end by that.
    "spark.sql.streaming.noDataProgressEventInterval": "200ms",
    # Plans of batch jobs may be revised while they run; a stream would do so in every batch.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A text that is no time is null, also where Spark 2 would have read something into it.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.shuffle.partitions": "8",  # a checkpoint keeps the number it began with
}
# Only for a driver that is the whole cluster.
_LOCAL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    _JAVA_OPTIONS: "-XX:+UseParallelGC -Xss4m",
    "spark.driver.memory": "2g",
}


def submitted() -> bool:
    """Whether `spark-submit` started this process, and Spark before it."""
    return _SUBMITTED in os.environ


def default_log() -> Path:
    """Where Spark's own log is, unless another file is given."""
    return cache_folder("logs") / "spark.log"


def start_session(
    master: str = "local[2]",
    *,
    name: str = "mercury",
    settings: dict[str, str] | None = None,
    log_file: Path | None = None,
    class_list: Path | None = None,
) -> SparkSession:
    """Start Spark, or join the existing session, and add the embedded bus as a source.

    Under `spark-submit` a JVM runs already: its master and settings apply. Else all that the
    JVM and its Python workers write goes to the log file; what fails is raised here as well.
    """
    conf = SparkConf(loadDefaults=False).setAppName(name)
    if submitted():
        conf.setAll(list(_not_said(_SETTINGS | (settings or {})).items()))
    else:
        conf.setMaster(master).setAll(
            list(_start_options(master, settings or {}, class_list).items())
        )
        if SparkContext._gateway is None:
            _start_java(conf, log_file or default_log())
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        SparkContext.getOrCreate(conf)
        if signal.getsignal(signal.SIGINT) is not interrupt:
            signal.signal(signal.SIGINT, interrupt)  # pyspark's calls Java amid another call
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise PipelineError(
            f"Spark did not start: {first_line(error)};"
            f" the details are in {log_file or default_log()}"
        ) from error
    # It would print the traceback of a JVM that was killed.
    updates = spark.sparkContext._accumulatorServer
    updates.handle_error = lambda *_: DETAILS.exception("Spark hung up")  # type: ignore[method-assign]
    spark.dataSource.register(EmbeddedSource)
    return spark


@contextmanager
def spark_session(master: str, *, name: str) -> Iterator[SparkSession]:
    """A Spark session for one query; an error is one sentence."""
    spark = start_session(master, name=name)
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise PipelineError(
            f"Spark failed: {first_line(error)}; the details are in {default_log()}"
        ) from error
    finally:
        with suppress(Py4JError, ConnectionError):  # its JVM may be gone
            spark.stop()


def first_line(error: object) -> str:
    """The error's message, without Spark's stack trace."""
    lines = str(error).strip().splitlines() or [""]
    # Py4J names first what it called, and then what Java raised.
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0]


def _start_java(conf: SparkConf, log_file: Path) -> None:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if log_file.exists() and log_file.stat().st_size > _LOG_BYTES:
        log_file.replace(log_file.with_suffix(".old.log"))
    # Py4J would write the traceback of a batch that is cut short to stderr.
    handler = logging.FileHandler(log_file, delay=True)
    DETAILS.handlers[:], DETAILS.propagate = [handler], False
    logging.getLogger().addHandler(handler)  # of some it complains there
    # In a thread, as a launch that Ctrl-C cuts short would leave its JVM behind for ever.
    with log_file.open("ab") as output, ThreadPoolExecutor(1) as launching:
        try:
            gateway = launching.submit(
                launch_gateway, conf, {"stdout": output, "stderr": output}
            ).result()
        except PySparkRuntimeError as error:
            raise PipelineError(f"Spark's Java did not start: {log_file} says why") from error
    SparkContext._ensure_initialized(gateway=gateway)


def _not_said(settings: dict[str, str]) -> dict[str, str]:
    """The settings that `spark-submit` was not given."""
    SparkContext._ensure_initialized()
    said = SparkConf()
    return {key: value for key, value in settings.items() if not said.contains(key)}


def _start_options(
    master: str, settings: dict[str, str], class_list: Path | None
) -> dict[str, str]:
    """The options that Spark is started with."""
    java = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = dict(_SETTINGS)
    if master.startswith("local"):
        chosen |= _LOCAL | local_files.settings(java)
        use_installed_spark()
    chosen |= settings
    logs = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    options = [chosen.get(_JAVA_OPTIONS, ""), logs]
    if master.startswith("local"):
        options.append(class_archive.options(java, chosen.get(_CLASS_PATH, ""), class_list))
    chosen[_JAVA_OPTIONS] = " ".join(filter(None, options))
    return chosen
