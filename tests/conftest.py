"""Settings for all tests; makes the tests' own modules importable as `session.world` and so on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from mercury.dev import KafkaBroker
from mercury.java.runtime import find_java
from mercury.model.errors import JavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))

# Tests are over before the JVM's better compiler pays; of Spark's drivers, and of Kafka.
for variable in ("SPARK_SUBMIT_OPTS", "KAFKA_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1")

# No test is the place to train Java for later starts.
os.environ.setdefault("MERCURY_PIPELINE__SHARE_CLASSES", "false")

# A loaded machine is no failure; what is too slow shows in `--durations`.
settings.register_profile("mercury", deadline=None, print_blob=True)
settings.load_profile("mercury")

# Tests signal their children, which inherit what is ignored: by `nohup`, or by a shell's `&`.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Why tests against a real Kafka are left out, if they are.
_no_kafka: list[str] = []


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One real Kafka broker for all tests; they share it by namespaces."""
    # In memory where there is such a folder: topics of many partitions are made much faster.
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="mercury-test-kafka-", dir=memory if memory.is_dir() else None)
    broker = KafkaBroker(Path(folder))
    try:
        try:
            broker.prepare()
        except JavaError as error:
            _no_kafka.append(str(error))
            pytest.skip(f"no Kafka here: {error}")
        broker.start()
        yield broker
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests of the pipeline."""
    from mercury.pipeline.spark.session import start_session

    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    quick = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xss4m"}
    session = start_session("local[2]", name="mercury-tests", settings=quick)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Java; a test whose child does so says it itself."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = getattr(getattr(item, "callspec", None), "id", "")
        if fixtures & {"java", "spark", "kafka_broker"} or "kafka" in parameters:
            item.add_marker(pytest.mark.jvm)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in _no_kafka[:1]:
        line = f"KAFKA WAS NOT TESTED: {reason}"
        terminalreporter.write_sep("!", red=True, bold=True)
        terminalreporter.write_line(line, red=True, bold=True)
        terminalreporter.write_sep("!", red=True, bold=True)
