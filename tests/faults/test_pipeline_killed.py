"""The pipeline is killed while events come: none is lost, no alert is doubled, poison is passed."""

from __future__ import annotations

import os
import random
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.eventful import ALONE, RULES, TOGETHER, Eventful, Place, due, place_of
from faults.family import Family, wait_for
from integration.processes import Process
from pyspark.sql import SparkSession

from mercury.bench.processes import health
from mercury.bus import Bus, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.bus.embedded.record_reader import RecordReader
from mercury.config import load_settings
from mercury.dev.processes import free_port
from mercury.model import topics
from mercury.model.message import Message
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.event_job import EventJob
from mercury.pipeline.history.journal import locked
from mercury.service import now_us
from mercury.service.statistics import LOSSES
from mercury.wire import decode

START_S = 180.0
TIMEOUT_S = 60.0
END_S = 20.0
TRY_AGAIN = 75
EVENTS = f"{topics.EVENTS_PREFIX}*"


class Run:
    """One run of `mercury pipeline`, and the processes it starts."""

    def __init__(self, folder: Path) -> None:
        self.metrics_port = free_port()
        self._process = Process(
            folder,
            "pipeline",
            *("--bus", f"embedded:{folder / 'bus.db'}", "--config", str(folder / "mercury.toml")),
            *("--metrics-port", str(self.metrics_port)),
        )
        self.family = Family(self._process.process.pid)

    def goes_on(self) -> bool:
        """True, unless it has ended by itself."""
        assert self._process.process.poll() is None, self.log
        return True

    @property
    def log(self) -> str:
        return self._process.log

    def ended(self) -> int:
        """Wait until it has ended, and return the exit code."""
        code = self._process.process.wait(TIMEOUT_S)
        self.is_gone()
        return code

    def kill(self) -> None:
        """Kill the process itself; what it has started must find out."""
        self.family.look()
        self._process.process.kill()
        self.ended()

    def kill_spark(self) -> int:
        """Kill the JVM; returns the code that the process then ends with."""
        self.family.look()
        jvm = self.family.command("SparkSubmit")
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        return self.ended()

    def is_gone(self) -> None:
        wait_for(lambda: not self.family.living(), END_S, "the end of Spark's processes")

    def end(self) -> None:
        """Leave nothing behind, whatever went wrong."""
        self.family.look()
        if self._process.process.poll() is None:
            self._process.process.kill()
        self._process.process.wait()
        self.family.end()

    def position(self) -> float | None:
        """How far events have been read."""
        return (health(self.metrics_port) or {}).get("events_position")

    def dropped(self) -> dict[str, float]:
        """What was dropped in this run, by reason."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5.0)
        pattern = r'^mercury_pipeline_dropped_total\{reason="([^"]+)"\} (\S+)$'
        return {
            reason: float(count)
            for reason, count in re.findall(pattern, page.read().decode(), re.MULTILINE)
            if reason not in LOSSES or float(count)
        }


class Runs:
    """One run after the other, on one bus and one checkpoint."""

    def __init__(self, folder: Path) -> None:
        (folder / "mercury.toml").write_text(RULES)
        self._folder = folder
        self._runs: list[Run] = []

    def begin(self) -> Run:
        self._runs.append(Run(self._folder))
        return self._runs[-1]

    def end(self) -> None:
        for run in self._runs:
            run.end()


class Receipts:
    """The alerts on the bus, as they come."""

    def __init__(self, bus: Bus) -> None:
        self.alerts: list[Message] = []
        self._consumer = bus.subscribe(topics.ALERTS, start="earliest")

    def look(self) -> list[Message]:
        """All alerts until now."""
        while records := self._consumer.poll(4096):
            self.alerts += [decode(record.value) for record in records]
        return self.alerts

    def more(self, run: Run) -> None:
        """Wait until another one comes in this run."""
        before = len(self.look())
        wait_for(lambda: run.goes_on() and len(self.look()) > before, START_S, "another alert")

    def of(self, kind: str) -> Counter[Place]:
        """How many alerts each place had."""
        events = [one.event for one in self.look()]
        return Counter(place_of(event) for event in events if event and event.kind == kind)


@pytest.fixture
def buses(tmp_path: Path) -> Iterator[tuple[Bus, Bus]]:
    """The bus, once to write and once to read."""
    path, kept = tmp_path / "bus.db", Retention(None, None)
    writes, reads = EmbeddedBus(path, retention=kept), EmbeddedBus(path, retention=kept)
    yield writes, reads
    reads.close()
    writes.close()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    runs.end()


def test_killed_at_random_moments(
    spark: SparkSession, buses: tuple[Bus, Bus], runs: Runs, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    writes, reads = buses
    world, alerts = Eventful(writes, rng), Receipts(reads)
    reader = RecordReader(tmp_path / "bus.db")

    with world.going_on():
        run = runs.begin()
        time.sleep(rng.uniform(0.5, 6.0))  # killed at random moments, here while it still starts
        run.kill()

        run = runs.begin()
        alerts.more(run)
        time.sleep(rng.uniform(0.0, 2.0))
        if rng.random() < 0.5:
            run.kill()
        else:
            assert run.kill_spark() == TRY_AGAIN, run.log

        run = runs.begin()
        alerts.more(run)
        time.sleep(rng.uniform(0.0, 2.0))
    # Nothing happens any more: what is read now and not judged is for the next run to judge.
    wait_for(lambda: caught_reading(world, run, alerts, reader), TIMEOUT_S, "one not judged yet")
    dropped = run.dropped()
    run.kill()
    assert dropped.keys() == {"malformed", "no-event", "version"}

    expected = due(reads)
    with job_going_on(spark, tmp_path, reads) as job:
        missing = lambda: expected[TOGETHER] - alerts.of(TOGETHER).keys()  # noqa: E731
        wait_for(lambda: job.tick() or not missing(), TIMEOUT_S, "the rest of the incidents")
        assert job.counters["events_rows"] == 0  # all had been read

    for kind, places in expected.items():
        found = alerts.of(kind)
        assert sorted(places - found.keys()) == [], f"{kind} lost, seed {seed}"
        assert sorted(found.keys() - places) == [], f"{kind} invented, seed {seed}"
        assert {place: n for place, n in found.items() if n > 1} == {}, f"doubled, seed {seed}"
    assert len({one.id for one in alerts.look()}) == len(alerts.look()), f"seed {seed}"
    assert len(expected[ALONE]) > 1000
    assert len(expected[TOGETHER]) > 20


def caught_reading(world: Eventful, run: Run, alerts: Receipts, reader: RecordReader) -> bool:
    """Whether a new incident has no alert yet when the pipeline has read all there is."""
    place = world.incident()
    end = sum(reader.ends([EVENTS]).values())
    wait_for(lambda: run.position() == end, TIMEOUT_S, "all events being read")
    return (place.lat, place.lon) not in alerts.of(TOGETHER)


def test_a_second_pipeline_is_refused(runs: Runs, tmp_path: Path) -> None:
    checkpoint = tmp_path / "bus.db-pipeline"
    with locked(checkpoint, "pipeline"):
        run = runs.begin()
        assert run.ended() == 1
    assert f"another pipeline works with {checkpoint}" in " ".join(run.log.split())


@contextmanager
def job_going_on(spark: SparkSession, folder: Path, bus: Bus) -> Iterator[EventJob]:
    """The last run, in this process: it goes on from the same checkpoint."""
    settings, checkpoint = load_settings(folder / "mercury.toml"), folder / "bus.db-pipeline"
    job = EventJob(settings.detection.rules(), AlertsSink(bus, now_us()), checkpoint)
    query = job.start(spark, f"embedded:{folder / 'bus.db'}")
    try:
        yield job
    finally:
        query.stop()
