"""An event that comes late counts in its bin while that is open, and is counted as late after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from mercury.bus import Bus, open_bus
from mercury.detection import KindRule
from mercury.model import topics
from mercury.model.identity import new_id
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.event_job import EventJob
from mercury.pipeline.schemas import EVENT
from mercury.wire import decode

RULE = KindRule("pothole", "count >= 2", every_s=1.0, lateness_s=2.0)
HERE = (40.76, -111.89)
FAR = (40.80, -111.89)
NOW_S = 1_800_000_000


@pytest.fixture
def bus() -> Iterator[Bus]:
    bus = open_bus("memory:late-events")
    yield bus
    bus.close()


class Batches:
    """One batch after the other, of one event each."""

    def __init__(self, spark: SparkSession, bus: Bus, folder: Path) -> None:
        self._spark, self._bus, self._folder = spark, bus, folder
        self._done: list[DataFrame] = []
        self.job = self._new_job()

    def _new_job(self) -> EventJob:
        sink = AlertsSink(self._bus, NOW_S * 1_000_000)
        return EventJob([RULE], sink, self._folder)

    def take(self, reporter: str, second: float, place: tuple[float, float] = HERE) -> None:
        """An event whose record has this time."""
        time_us = NOW_S * 1_000_000 + int(second * 1e6)
        row = (RULE.kind, time_us, new_id(), reporter, *place, 0.0, 0.0, None)
        self._done.append(self._spark.createDataFrame([row], EVENT))
        self.job.on_batch(self._done[-1], len(self._done) - 1)

    def again(self) -> None:
        """The last batch once more, by a job that starts anew."""
        self.job = self._new_job()
        self.job.on_batch(self._done[-1], len(self._done) - 1)

    def counts(self) -> list[object]:
        """How many witnesses each alert speaks of."""
        alerts = self._bus.subscribe(topics.ALERTS, start="earliest").poll(100)
        events = [decode(alert.value).event for alert in alerts]
        return [event.values["count"] for event in events if event]


def test_it_counts_in_its_bin_or_as_late(spark: SparkSession, bus: Bus, tmp_path: Path) -> None:
    batches = Batches(spark, bus, tmp_path)
    batches.take("a", 0.2)
    batches.take("z", 2.9, FAR)  # so late it is: the first interval has ended and is still open
    batches.take("b", 0.4)
    assert batches.counts() == []
    assert batches.job.dropped == {}
    batches.take("z", 3.1, FAR)  # now it is judged
    assert batches.counts() == [2]
    batches.take("c", 0.6)
    assert batches.job.dropped == {"late": 1}
    batches.again()
    assert batches.job.dropped == {"late": 1}
    assert batches.counts() == [2]
