"""The pipeline on a real Spark cluster over a real Kafka finds what it finds on one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from live import eventually

from mercury.bus import Bus, open_bus
from mercury.dev import KafkaBroker, SparkCluster
from mercury.dev.processes import free_port
from mercury.dev.spark import spark_home
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.pipeline.spark import kafka_connector
from mercury.wire import decode, encode
from mercury.wire.records import telemetry_fix

CONFIG = """
[detection.kinds.collision]
predicate = "count >= 3"
every_s = 0

[detection.congestion]
window_s = 10.0
learn_s = 60.0
on_after_s = 30.0
min_vehicles = 3

[pipeline]
history_interval_s = 1.0
"""
PLACES = [Position(40.70 + number * 0.01, -111.90) for number in range(6)]
ALERTS = 4  # of three collisions and a jam; history keeps them, too
READ_S = 150.0
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # the test is over before better code pays
Row = tuple[str, bytes, bytes, tuple[tuple[str, bytes], ...], int]


def recording(begin_us: int) -> Iterator[Row]:
    """Four minutes: three collisions of four seen often enough, a jam to the east, and poison."""
    for number, place in enumerate(PLACES):
        for witness in range(2 if number % 2 else 4):
            message = Message(
                kind=Kind.EVENT,
                source=Address.client(f"car-{number}-{witness}"),
                destination=Address.broker(),
                payload=Event("collision", place),
            )
            at_us = begin_us + (number * 10 + witness) * 1_000_000
            yield "events.collision", encode(message), f"{place.lat:.2f}".encode(), (), at_us
    yield "events.collision", b"\xff\xff poison", b"k", (), begin_us + 1
    for second in range(0, 240, 2):
        at_us = begin_us + second * 1_000_000
        for heading_deg, name in ((90.0, "east"), (270.0, "west")):
            speed_mps = 1.0 if name == "east" and second >= 120 else 14.0
            for number in range(5):
                yield report(f"{name}-{number}", number, heading_deg, speed_mps, at_us)


def report(name: str, number: int, heading_deg: float, speed_mps: float, at_us: int) -> Row:
    telemetry = Telemetry(Position(40.76, -111.89 + number * 1e-4), heading_deg, speed_mps)
    message = Message(
        kind=Kind.REPORT,
        source=Address.client(name),
        destination=Address.adapter("a"),
        payload=telemetry,
    )
    return topics.REPORTS, encode(message), name.encode(), (telemetry_fix(telemetry),), at_us


class Embedded:
    """The bus of one machine, and the pipeline as `mercury pipeline` runs it."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"embedded:{folder / 'bus.db'}"
        self.bus = open_bus(self.uri)
        self.command = [sys.executable, "-m", "mercury", "pipeline", "--spark-master", "local[2]"]
        self.command += ["--spark-conf", f"spark.driver.extraJavaOptions={QUICK} -Xss4m"]

    def put(self, rows: list[Row]) -> None:
        with mock.patch.object(time, "time_ns") as clock:
            for topic, value, key, headers, at_us in rows:
                clock.return_value = at_us * 1000
                self.bus.append(topic, value, key, headers)
                self.bus.flush_now()


class Cluster:
    """Kafka, and the pipeline as `spark-submit` runs it."""

    def __init__(self, kafka: KafkaBroker, spark: SparkCluster) -> None:
        namespace = f"cluster-{os.urandom(4).hex()}"
        self.uri = f"{kafka.uri}/{namespace}"
        self.bus = open_bus(self.uri)
        self._prefix = f"{namespace}."
        self._servers = kafka.uri.removeprefix("kafka://")
        jars = ",".join(map(str, kafka_connector.jars()))
        entry = Path(sys.modules["mercury"].__file__ or "").with_name("__main__.py")
        self.command = [
            str(spark_home() / "bin" / "spark-submit"), "--master", spark.master, "--jars", jars,
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m",
            "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.log.level=WARN",
            "--driver-java-options", QUICK, "--conf", f"spark.executor.extraJavaOptions={QUICK}",
            str(entry), "pipeline",
        ]  # fmt: skip

    def put(self, rows: list[Row]) -> None:
        self._make_topics({row[0] for row in rows})
        producer = Producer({"bootstrap.servers": self._servers, "partitioner": "murmur2_random"})
        for topic, value, key, headers, at_us in rows:
            producer.produce(
                self._prefix + topic, value, key, timestamp=at_us // 1000, headers=list(headers)
            )
        assert producer.flush(30.0) == 0

    def _make_topics(self, names: set[str]) -> None:
        # Topics that the bus makes are stamped by Kafka: a recording brings its own times.
        admin = AdminClient({"bootstrap.servers": self._servers})
        stamped = {"message.timestamp.type": "CreateTime"}
        known = admin.list_topics(timeout=10.0).topics
        new = [self._prefix + name for name in names if self._prefix + name not in known]
        if new:
            made = admin.create_topics([NewTopic(name, 2, config=stamped) for name in new])
            for one in made.values():
                one.result(30.0)


@contextmanager
def pipeline(place: Embedded | Cluster, folder: Path) -> Iterator[int]:
    """Run the pipeline; yields its metrics port."""
    folder.mkdir()
    config = folder / "mercury.toml"
    config.write_text(CONFIG)
    port = free_port()
    arguments = ["--bus", place.uri, "--config", str(config), "--metrics-port", str(port)]
    arguments += ["--checkpoint", str(folder / "checkpoint")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "MERCURY_PIPELINE__HISTORY_FOLDER": str(folder / "history"),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*place.command, *arguments], env=environment, stdout=log, stderr=log
        )
    try:
        yield port
    finally:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(port: int, folder: Path, **wanted: float) -> None:
    """Wait until numbers of `/metrics` are reached."""
    found: dict[str, float] = {}

    def reached() -> bool:
        found.update(metrics(port))
        return all(found.get(key, 0) >= least for key, least in wanted.items())

    try:
        eventually(reached, READ_S)
    except AssertionError:
        log = (folder / "log").read_text()[-3000:]
        pytest.fail(f"{wanted} did not come true: {found}\n{log}")


def metrics(port: int) -> dict[str, float]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as answer:
            page = answer.read().decode()
    except OSError:
        return {}
    found = re.findall(r"^mercury_pipeline_(\w+?)(?:_total)? (\S+)$", page, re.MULTILINE)
    return {name: float(value) for name, value in found}


def results(place: Embedded | Cluster, folder: Path, rows: list[Row]) -> dict[str, Any]:
    """What the pipeline makes of a recording."""
    with closing(place.bus):
        return _results(place, folder, rows)


def _results(place: Embedded | Cluster, folder: Path, rows: list[Row]) -> dict[str, Any]:
    last_us = rows[-1][4]
    place.put(rows)
    with pipeline(place, folder) as port:
        reports = sum(row[0] == topics.REPORTS for row in rows)
        wait_until(port, folder, congestion_position=reports)
        # Windows are over when somebody reports later.
        place.put([report("late", 0, 90.0, 14.0, last_us + 60_000_000)])
        wait_until(port, folder, alerts=ALERTS, history_rows=len(rows) + 1 + ALERTS)
    return {
        "alerts": sorted(_alerts(place.bus)),
        "reports": _table(folder, "reports", ["client", "time_us", "lat", "lon", "speed_mps"]),
        "events": _table(folder, "events", ["id", "kind", "reporter", "time_us", "lat", "lon"]),
        "rejects": _table(folder, "rejects", ["reason", "value"]),
    }


def _alerts(bus: Bus) -> Iterator[tuple[object, ...]]:
    for record in bus.subscribe(topics.ALERTS, start="earliest").poll(1000):
        message = decode(record.value)
        assert message.event is not None
        yield (
            message.topic,
            message.id,
            message.expires_us,
            str(message.destination.area),
            tuple(sorted(message.event.values.items())),
        )


def _table(folder: Path, name: str, columns: list[str]) -> list[tuple[object, ...]]:
    table = pq.read_table(folder / "history" / name, columns=columns)
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def test_a_cluster_over_kafka_finds_what_one_machine_finds(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    begin_us = (int(time.time()) - 7200) // 60 * 60_000_000
    rows = sorted(recording(begin_us), key=lambda row: row[4])
    alone = results(Embedded(tmp_path), tmp_path / "alone", rows)
    kinds = [row[0] for row in alone["alerts"]]
    assert kinds.count("collision") == 3
    assert kinds.count("congestion") == 1
    with SparkCluster(workers=2) as spark:
        together = results(Cluster(kafka_broker, spark), tmp_path / "together", rows)
        apps = list((spark.folder / "work").glob("app-*/*"))
        assert len(apps) == 2, apps  # both workers had an executor
    assert together == alone
