"""Spark reads the embedded bus: all records, once, in streams and in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.whole_bus import read_batch
from pyspark.sql import DataFrame, SparkSession

from mercury.bus import Bus, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.model.errors import PipelineError
from mercury.pipeline.spark import embedded_source
from mercury.pipeline.spark.sources import read_stream


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.fixture
def bus(path: Path) -> Iterator[Bus]:
    bus = EmbeddedBus(path, retention=Retention(None, None))
    yield bus
    bus.close()


def fill(bus: Bus, topic: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        bus.append(topic, b"%d" % number, b"key-%d" % (number % 7), (("position", b"p"),))
    bus.flush_now()


class Kept:
    """Collects what a stream brings."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.batches = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.numbers += [int(row.value) for row in frame.collect()]
        self.batches += 1


def test_a_batch_holds_every_field(spark: SparkSession, bus: Bus, path: Path) -> None:
    fill(bus, "events.a", 10)
    bus.append("events.a", b"bare")
    bus.flush_now()
    expected = bus.subscribe(["events.a"], start="earliest").poll()
    rows = read_batch(spark, f"embedded:{path}", ["events.*"]).orderBy("offset").collect()
    for row, record in zip(rows, expected, strict=True):
        assert (row.topic, row.partition, row.offset, row.time_us) == (
            "events.a", record.partition, record.offset, record.timestamp_us,
        )  # fmt: skip
        assert (bytes(row.key), bytes(row.value)) == (record.key, record.value)
        assert (row.position and bytes(row.position)) == dict(record.headers).get("position")


def test_only_the_topics_asked_for(spark: SparkSession, bus: Bus, path: Path) -> None:
    for topic in ("events.a", "events.b", "eventsless", "reports"):
        fill(bus, topic, 3)
    found = (
        read_batch(spark, f"embedded:{path}", ["events.*", "reports"]).select("topic").distinct()
    )
    assert {row.topic for row in found.collect()} == {"events.a", "events.b", "reports"}


def test_many_records_are_shared_among_tasks(
    spark: SparkSession, bus: Bus, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bus, "t", 1000)
    reader = embedded_source._StreamReader({"path": str(path), "topics": "t"})
    spans = reader.partitions({"t": 1}, {"t": 250_001, "new": 5})
    assert [(one.topic, one.begin, one.end) for one in spans] == [
        ("t", 1, 100_001), ("t", 100_001, 200_001), ("t", 200_001, 250_001), ("new", 1, 5),
    ]  # fmt: skip
    assert read_batch(spark, f"embedded:{path}", ["t"]).count() == 1000


def test_an_empty_bus_is_an_empty_frame(spark: SparkSession, bus: Bus, path: Path) -> None:
    assert read_batch(spark, f"embedded:{path}", ["events.*"]).count() == 0


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, bus: Bus, path: Path, tmp_path: Path
) -> None:
    fill(bus, "t", 100)
    kept = Kept()

    def run() -> None:
        stream = read_stream(spark, f"embedded:{path}", ["t", "u.*"])
        query = (
            stream.writeStream.foreachBatch(kept)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert kept.numbers == list(range(100))
    fill(bus, "t", 50, 100)
    fill(bus, "u.new", 5, 1000)  # a topic that did not exist before
    run()
    assert sorted(kept.numbers) == [*range(150), *range(1000, 1005)]
    run()
    assert len(kept.numbers) == 155


def test_batches_can_be_bounded(spark: SparkSession, bus: Bus, path: Path, tmp_path: Path) -> None:
    fill(bus, "a", 30)
    fill(bus, "b", 30, 30)
    kept = Kept()
    stream = read_stream(spark, f"embedded:{path}", ["a", "b"], max_records=25)
    query = (
        stream.writeStream.foreachBatch(kept)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    assert sorted(kept.numbers) == list(range(60))
    assert kept.batches == 3


def test_other_buses_are_refused(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match=r"embedded: and kafka:.*'memory:'"):
        read_stream(spark, "memory:", ["t"])


def test_plans_are_revised_in_batch_jobs_and_not_in_streams(
    spark: SparkSession, bus: Bus, path: Path, tmp_path: Path
) -> None:
    fill(bus, "t", 10)
    stream = read_stream(spark, f"embedded:{path}", ["t"]).repartition("topic")
    writer = stream.writeStream.foreachBatch(Kept()).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    batch = read_batch(spark, f"embedded:{path}", ["t"]).repartition("topic")
    batch.collect()
    streamed = query._jsq.explainInternal(False)
    assert "Exchange hashpartitioning(topic" in streamed
    assert "AdaptiveSparkPlan" not in streamed
    assert "AdaptiveSparkPlan" in batch._jdf.queryExecution().executedPlan().toString()
