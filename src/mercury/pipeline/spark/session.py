"""The Spark session: found, set up for short batches, or one sentence on what is missing."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from mercury.java.archives import cache_folder
from mercury.java.runtime import find_java
from mercury.pipeline.spark import class_archive, quick_files
from mercury.pipeline.spark.embedded_source import EmbeddedSource

log = logging.getLogger(__name__)

_CLASS_PATH = "spark.driver.extraClassPath"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # in the environment of what spark-submit starts

# What makes micro-batches short, by effect: Python workers talk over a Unix socket, no empty
# batches, few small tasks, plans that are not revised while they run.
_QUICK = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
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
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Xss4m",
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "mercury.pipeline.spark.worker_daemon",
}
_QUIET_LOGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n%ex{1}
"""


def submitted() -> bool:
    """Whether `spark-submit` started us, and Spark before us."""
    return _SUBMITTED in os.environ


def start_session(
    master: str = "local[2]",
    *,
    name: str = "mercury",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or join the session there is, and teach it to read the embedded bus.

    Under `spark-submit` a JVM runs already: its master and its settings hold.
    """
    builder = SparkSession.builder.appName(name)
    if submitted():
        chosen = _not_said(_QUICK | (settings or {}))
    else:
        builder = builder.master(master)
        chosen = _start_options(master, settings or {})
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(EmbeddedSource)
    return spark


def _not_said(settings: dict[str, str]) -> dict[str, str]:
    """Those settings that `spark-submit` was not told otherwise."""
    SparkContext._ensure_initialized()
    said = SparkConf()
    return {key: value for key, value in settings.items() if not said.contains(key)}


def _start_options(master: str, settings: dict[str, str]) -> dict[str, str]:
    """What Spark is started with; the driver's JVM reads it from the environment."""
    java = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark has a short-lived JVM put its command line together.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    chosen = dict(_QUICK)
    if master.startswith("local"):
        chosen |= _LOCAL | quick_files.settings(java)
        use_quick_home()
    chosen |= settings
    logs = Path(tempfile.gettempdir()) / f"mercury-spark-logs-{os.getuid()}.properties"
    logs.write_text(_QUIET_LOGS)
    options = f"-Dlog4j2.configurationFile={logs.as_uri()}"
    if master.startswith("local"):
        options += f" {class_archive.options(java, chosen.get(_CLASS_PATH, ''))}"
    key = "spark.driver.extraJavaOptions"
    chosen[key] = f"{chosen.get(key, '')} {options}".strip()
    submit = shlex.join(part for one in chosen.items() for part in ("--conf", "=".join(one)))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {master} {submit} pyspark-shell"
    return chosen


def use_quick_home() -> None:
    """Have Python workers import Spark as it is installed, compiled.

    In its home Spark finds an archive of its Python sources, which every worker would compile
    anew; a home without that has workers look where we found it.
    """
    if "SPARK_HOME" in os.environ:
        return
    installed = Path(pyspark.__file__).parent
    mark = hashlib.sha256(f"{installed}".encode()).hexdigest()[:16]
    home = cache_folder(f"spark-home-{mark}")
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars"):
            if not (home / name).exists():
                with suppress(FileExistsError):  # another process has just made it
                    (home / name).symlink_to(installed / name)
    except OSError as error:
        log.debug("Python workers start more slowly: %s", error)
        return
    os.environ["SPARK_HOME"] = str(home)
