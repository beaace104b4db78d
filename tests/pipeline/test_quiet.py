"""What a person sees of Spark: nothing while all is well, else one sentence and where to look."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from cli.commands import mercury, mercury_afresh
from faults.family import Family, wait_for
from integration.processes import Process

from mercury.bus import Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.java.runtime import find_java
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import JavaError
from mercury.model.message import Address, Event, Kind, Message
from mercury.pipeline.spark import embedded_source
from mercury.wire import encode

_LOG_LINE = re.compile(r"\d\d:\d\d:\d\d INFO +mercury\.\S+: .+")


@pytest.fixture
def java() -> str:
    try:
        return find_java()
    except JavaError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("stage", ["Spark is up", "pipeline is up"])  # jobs start between them
def test_a_healthy_run_says_nothing_of_spark(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("MERCURY_PIPELINE__SHARE_CLASSES", "true")  # as it is by default
    folder = tmp_path / "with a space"
    folder.mkdir()
    bus = EmbeddedBus(folder / "bus.db", retention=Retention(None, None))
    for number in range(3):
        message = Message(
            kind=Kind.EVENT,
            source=Address.client(f"car-{number}"),
            destination=Address.broker(),
            payload=Event("collision", Position(40.76, -111.89)),
        )
        bus.append(topics.events_topic("collision"), encode(message), b"here")
    bus.flush_now()
    alerts = bus.subscribe(topics.ALERTS)
    run = Process(folder, "pipeline", "--bus", f"embedded:{folder / 'bus.db'}")
    try:
        wait_for(lambda: stage in run.log, 180.0, "the pipeline's start")
        wait_for(lambda: bool(alerts.poll()), 30.0, "the alert")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60.0) == 0
    finally:
        run.process.kill()
        run.process.wait()
        bus.close()
    strange = [line for line in run.log.splitlines() if not _LOG_LINE.fullmatch(line)]
    assert strange == []
    said = (folder / "bus.db-pipeline" / "spark.log").read_text()
    assert "incubator" in said  # what Java has to say is there
    # Workers that wait for work may say that Spark hung up on them. It must not have cut a batch
    # short, nor missed whom it reports to.
    assert " ERROR " not in said
    assert "PythonException" not in said


@pytest.mark.parametrize("stage", ["Spark is up", "pipeline is up"])
def test_a_spark_that_is_killed_is_told_in_one_sentence(
    java: str, tmp_path: Path, stage: str
) -> None:
    run = Process(tmp_path, "pipeline", "--bus", "embedded:bus.db")
    family = Family(run.process.pid)
    try:
        wait_for(lambda: stage in run.log, 180.0, "the pipeline's start")
        family.look()
        machine = family.command("org.apache.spark")
        assert machine is not None
        os.kill(machine, signal.SIGKILL)
        assert run.process.wait(60.0) == 75, run.log  # whoever supervises starts it again
    finally:
        run.process.kill()
        run.process.wait()
        family.end()
    strange = [line for line in run.log.splitlines() if not _LOG_LINE.fullmatch(line)]
    assert strange == [
        "mercury: Spark does not answer; the details are in bus.db-pipeline/spark.log"
    ]
    assert "Traceback" in (tmp_path / "bus.db-pipeline" / "spark.log").read_text()


@pytest.mark.parametrize(
    ("option", "sentence", "detail"),
    [
        (
            "--spark-conf=spark.driver.extraJavaOptions=-agentlib:none-such",
            "mercury: Spark's Java did not start: bus.db-pipeline/spark.log says why",
            "none-such",
        ),
        (
            "--spark-master=local[none-such]",
            "mercury: Spark did not start: org.apache.spark.SparkException: Could not parse Master"
            " URL: 'local[none-such]'; the details are in bus.db-pipeline/spark.log",
            "ERROR SparkContext: Error initializing SparkContext.",
        ),
    ],
)
def test_a_spark_that_does_not_start(
    java: str, tmp_path: Path, option: str, sentence: str, detail: str
) -> None:
    done = mercury("pipeline", "--bus", "embedded:bus.db", option, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [sentence]  # after that it is starting
    assert detail in (tmp_path / "bus.db-pipeline" / "spark.log").read_text()


def test_a_source_that_spark_has_left_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    reader = embedded_source._StreamReader({"path": "bus.db", "topics": "reports"})
    reader.stop()
    for error in (ValueError(), EOFError(), BrokenPipeError()):
        try:
            try:
                raise error
            finally:
                reader.stop()
        except type(error):
            pass
    assert ended == [0, 0]  # only when it was left: an error is Spark's to hear of


def test_what_to_install_is_said_whole(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark')")
    (tmp_path / "bus.db-history").mkdir()
    path = os.pathsep.join([str(tmp_path), *sys.path])
    importing = ("import", "x.csv", "--to", "parquet", "t")
    for command in (("history", "tables"), importing, ("pipeline",)):
        done = mercury_afresh(
            *command, folder=tmp_path, PYTHONPATH=path, MERCURY_BUS__URI="embedded:bus.db"
        )
        assert done.stderr == (
            "mercury: this needs pyspark: pip install 'mercury-messaging[pipeline]'\n"
        )
