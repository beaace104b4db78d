"""The Spark session: found, set up for short batches, or one sentence on what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from mercury.model.errors import PipelineError
from mercury.pipeline import quick_files
from mercury.pipeline.embedded_source import EmbeddedSource

JAVA_NEEDED = 17
JAVA_HINT = (
    "Spark needs Java 17 or later, and there is none: install it"
    " (Debian and Ubuntu: apt-get install openjdk-17-jdk-headless)"
)

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
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "10s",
}
# Only for a driver that is the whole cluster.
_LOCAL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Xss4m",
    "spark.driver.memory": "2g",
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


def check_java() -> str:
    """The path of a Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise PipelineError(JAVA_HINT)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_NEEDED:
        raise PipelineError(f"{JAVA_HINT}; {java} is {said.splitlines()[0] if said else 'silent'}")
    return java


def start_session(
    master: str = "local[2]",
    *,
    name: str = "mercury",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or join the session there is, and teach it to read the embedded bus."""
    java = check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = dict(_QUICK)
    if master.startswith("local"):
        chosen |= _LOCAL | quick_files.settings(java)
    chosen |= settings or {}
    logs = Path(tempfile.gettempdir()) / f"mercury-spark-logs-{os.getuid()}.properties"
    logs.write_text(_QUIET_LOGS)
    options = f"-Dlog4j2.configurationFile={logs.as_uri()}"
    key = "spark.driver.extraJavaOptions"
    chosen[key] = f"{chosen.get(key, '')} {options}".strip()
    # The driver's options must be known before its JVM starts.
    submit = " ".join(f'--conf "{key}={value}"' for key, value in chosen.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {master} {submit} pyspark-shell"
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(EmbeddedSource)
    return spark
