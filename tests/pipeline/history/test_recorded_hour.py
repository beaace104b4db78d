"""One recorded hour through stream and batch: the same rows and the same alerts, one by one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pipeline.whole_bus import read_batch
from pyspark.sql import DataFrame, SparkSession

from mercury.bus import Bus, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.detection import CongestionRule, KindRule
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.pipeline.detection import congestion_job
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.congestion_job import CongestionJob, TrafficCore
from mercury.pipeline.detection.event_job import AllKinds, EventJob
from mercury.pipeline.detection.transforms import cell_speeds, events, positions
from mercury.wire import decode, encode
from mercury.wire.records import telemetry_fix

BEGIN_US = 1_790_000_000_000_000
HOUR_S = 3600
JAM = range(1800, 2700)
COLLISIONS = range(600, HOUR_S, 600)  # every other one is seen by enough
CONGESTION = CongestionRule(window_s=10.0, learn_s=300.0, on_after_s=60.0, min_vehicles=3)
RULES = (KindRule("collision", "count >= 3", every_s=30.0, reach_m=100.0),)


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bus, str]]:
    """Traffic both ways along a road, a jam to the east, a collision every ten minutes."""
    path = tmp_path_factory.mktemp("hour") / "bus.db"
    bus = EmbeddedBus(path, retention=Retention(None, None))
    rng = random.Random(1)
    with mock.patch.object(time, "time_ns") as clock:
        for second in range(0, HOUR_S, 5):
            clock.return_value = (BEGIN_US + second * 1_000_000) * 1000
            for heading_deg, name in ((90.0, "east"), (270.0, "west")):
                usual_mps = 1.0 if name == "east" and second in JAM else 14.0
                for number in range(6):
                    place = Position(40.76, -111.89 + rng.uniform(0.0, 0.01))
                    speed_mps = usual_mps * rng.uniform(0.8, 1.2)
                    telemetry = Telemetry(place, heading_deg, speed_mps)
                    header = telemetry_fix(telemetry)
                    bus.append(topics.REPORTS, b"", f"{name}-{number}".encode(), (header,))
            if second in COLLISIONS:
                for witness in range(2 if second % 1200 else 4):
                    message = Message(
                        kind=Kind.EVENT,
                        source=Address.client(f"car-{witness}"),
                        destination=Address.broker(),
                        payload=Event("collision", Position(40.70, -111.90)),
                    )
                    bus.append("events.collision", encode(message), b"here")
            bus.flush_now()
        # Windows and intervals are over when something comes later.
        clock.return_value = (BEGIN_US + 2 * HOUR_S * 1_000_000) * 1000
        bus.append(topics.REPORTS, b"", b"late", (telemetry_fix(Telemetry(Position(0, 0), 0, 0)),))
        bus.flush_now()
    yield bus, f"embedded:{path}"
    bus.close()


class Watched(CongestionJob):
    """Also keeps what Spark hands to the core."""

    trigger = None

    def __init__(self, bus: Bus, folder: Path) -> None:
        super().__init__(CONGESTION, AlertsSink(bus, BEGIN_US), folder)
        self.rows: list[dict[str, Any]] = []
        self.batches = 0

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        self.rows += frame.toArrow().to_pylist()
        self.batches += 1
        super().on_batch(frame, batch)


def in_order(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    # A mean depends on the order of its terms in the last digits.
    return sorted(
        (row["window_us"], row["cell"], row["sector"], row["vehicles"], round(row["speed_mps"], 9))
        for row in rows
    )


def written(bus: Bus, kind: str) -> list[tuple[Any, ...]]:
    consumer = bus.subscribe(topics.ALERTS, start="earliest")
    messages = [decode(record.value) for record in consumer.poll(10_000)]
    consumer.close()
    return sorted(
        (one.id.bytes, one.expires_us, str(one.destination.area))
        for one in messages
        if one.topic == kind
    )


def test_a_recorded_jam_is_found(
    spark: SparkSession, hour: tuple[Bus, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, uri = hour
    monkeypatch.setattr(congestion_job, "MAX_RECORDS", 2000)
    job = Watched(bus, tmp_path)
    query = job.start(spark, uri)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert job.batches >= 5

    whole = cell_speeds(positions(read_batch(spark, uri, [topics.REPORTS])), CONGESTION).toArrow()
    over_us = BEGIN_US + HOUR_S * 1_000_000
    finished = [row for row in whole.to_pylist() if row["window_us"] < over_us]
    # What the last batch brought has moved the watermark, and waits for the next one.
    streamed = in_order(job.rows)
    until_us = streamed[-1][0]
    assert streamed == [row for row in in_order(finished) if row[0] <= until_us]
    assert until_us >= over_us - 2000 / 12 * 5 * 1_000_000

    core = TrafficCore(CONGESTION)
    verdicts = core.take(whole)
    expected = sorted((one.alert_id, one.until_us, str(one.area)) for one in verdicts)
    assert expected
    assert written(bus, "congestion") == expected


def test_recorded_events_become_alerts(
    spark: SparkSession, hour: tuple[Bus, str], tmp_path: Path
) -> None:
    bus, uri = hour
    job = EventJob(RULES, AlertsSink(bus, BEGIN_US), tmp_path)
    query = job.start(spark, uri)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    later_us = BEGIN_US + 2 * HOUR_S * 1_000_000
    job._publish(job._core.advance(later_us))

    core = AllKinds(RULES, job.dropped)
    verdicts = core.take(events(read_batch(spark, uri, ["events.*"])).toArrow())
    verdicts += core.advance(later_us)
    expected = sorted((one.alert_id, one.until_us, str(one.area)) for one in verdicts)
    assert len(expected) == 2
    assert written(bus, "collision") == expected
