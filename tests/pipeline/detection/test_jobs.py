"""The jobs on a real bus: what they find, once, whatever is cut short or done again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.family import wait_for
from geo.oracles import sector_of
from pipeline.whole_bus import read_batch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.bus import Bus, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.detection import CongestionRule, KindRule
from mercury.geo import contains_point
from mercury.geo.grid import Grid
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.congestion_job import CongestionJob, TrafficCore
from mercury.pipeline.detection.core_job import CoreJob
from mercury.pipeline.detection.event_job import AllKinds, EventJob
from mercury.pipeline.detection.transforms import cell_of, cell_speeds, events, positions
from mercury.pipeline.detection.transforms import sector_of as sector_column
from mercury.service import now_us
from mercury.wire import decode, encode
from mercury.wire.records import telemetry_fix

RULES = (
    KindRule("collision", "count >= 3"),
    KindRule("obstacle", "count >= 2", every_s=0.001, lateness_s=0.0),
)
HERE = Position(40.76, -111.89)
NEAR = Position(40.7605, -111.89)  # 56 m to the north
FAR = Position(40.7650, -111.89)  # 556 m


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    bus = EmbeddedBus(tmp_path / "bus.db", retention=Retention(None, None))
    yield bus
    bus.close()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'bus.db'}"


def sense(bus: Bus, kind: str, *who_where: tuple[str, Position]) -> None:
    for who, where in who_where:
        message = Message(
            kind=Kind.EVENT,
            source=Address.client(who),
            destination=Address.broker(),
            payload=Event(kind, where),
        )
        bus.append(topics.events_topic(kind), encode(message), b"here")
    bus.flush_now()


def alerts(bus: Bus) -> list[Message]:
    found = bus.subscribe(topics.ALERTS, start="earliest").poll(1000)
    return [decode(record.value) for record in found]


class Runs:
    """A job that is started, and stopped, and started."""

    def __init__(self, spark: SparkSession, bus: Bus, uri: str, folder: Path) -> None:
        self._spark, self._bus, self._uri, self._folder = spark, bus, uri, folder

    def events(self) -> EventJob:
        return EventJob(RULES, AlertsSink(self._bus, now_us()), self._folder)

    def process(self, job: CoreJob) -> None:
        """Let a job read all that is there."""
        query = job.start(self._spark, self._uri)
        try:
            query.processAllAvailable()
        finally:
            query.stop()


@pytest.fixture
def runs(spark: SparkSession, bus: Bus, uri: str, tmp_path: Path) -> Runs:
    return Runs(spark, bus, uri, tmp_path / "checkpoint")


def test_three_witnesses_are_a_collision_and_two_are_not(bus: Bus, runs: Runs) -> None:
    sense(bus, "collision", ("a", HERE), ("b", NEAR), ("a", NEAR), ("a", HERE))
    sense(bus, "collision", ("x", FAR), ("y", FAR))
    sense(bus, "unheard-of", ("a", HERE))
    bus.append("events.collision", b"\xff\xff poison")
    job = runs.events()
    runs.process(job)
    assert alerts(bus) == []
    assert job.dropped == {"no-rule": 1, "malformed": 1}
    sense(bus, "collision", ("c", HERE), ("d", HERE))
    runs.process(runs.events())  # another process, as it were: what was counted is remembered
    (alert,) = alerts(bus)
    assert alert.event is not None
    assert alert.event.kind == "collision"
    assert alert.event.values["count"] == 3
    assert alert.destination.area is not None
    assert alert.source == Address.service("pipeline")
    assert not alert.expired(now_us())
    conditions = bus.subscribe([topics.CONDITIONS], start="earliest").poll()
    counts = {decode(one.value).id: decode(one.value).event.values["count"] for one in conditions}
    assert sorted(counts.values()) == [2, 4]  # the newest word on each


def test_two_incidents_half_a_kilometre_apart_are_two(bus: Bus, runs: Runs) -> None:
    for place in (HERE, FAR):
        sense(bus, "collision", *((name, place) for name in "abcdef"))
    runs.process(runs.events())
    assert len(alerts(bus)) == 2


def test_a_batch_done_again_gives_no_second_alert(
    spark: SparkSession, bus: Bus, uri: str, runs: Runs
) -> None:
    sense(bus, "collision", ("a", HERE), ("b", HERE))
    frame = events(read_batch(spark, uri, ["events.*"])).cache()
    runs.events().on_batch(frame, 0)
    sense(bus, "collision", ("c", HERE))
    whole = events(read_batch(spark, uri, ["events.*"])).toArrow()
    last = spark.createDataFrame(whole.slice(2), frame.schema)
    runs.events().on_batch(last, 1)
    assert len(alerts(bus)) == 1
    again = runs.events()  # died before Spark noted that the batch was done
    again.on_batch(last, 1)
    assert len(alerts(bus)) == 1
    assert again.counters["alerts"] == 0
    assert again._core.bins["collision"].counters.observed == 3  # not four


def test_intervals_end_while_nothing_comes(
    spark: SparkSession, bus: Bus, uri: str, runs: Runs
) -> None:
    sense(bus, "obstacle", ("a", HERE), ("b", HERE))
    job = runs.events()
    query = job.start(spark, uri)
    try:
        query.processAllAvailable()
        for _ in range(1000):
            job.tick()
            if alerts(bus):
                break
            query.awaitTermination(0.01)
    finally:
        query.stop()
    (alert,) = alerts(bus)
    assert alert.event is not None
    assert alert.event.kind == "obstacle"


def test_the_first_look_tells_whether_anything_was_there(
    spark: SparkSession, bus: Bus, uri: str, runs: Runs
) -> None:
    job = runs.events()
    query = job.start(spark, uri)
    try:
        assert not job.await_first_look()
    finally:
        query.stop()
    sense(bus, "collision", ("a", HERE), ("b", NEAR), ("c", HERE))
    job = runs.events()
    query = job.start(spark, uri)
    try:
        assert job.await_first_look()
        assert len(alerts(bus)) == 1  # it has been told by then
    finally:
        query.stop()


def test_stream_and_batch_find_the_same(
    spark: SparkSession, bus: Bus, uri: str, runs: Runs
) -> None:
    for number in range(40):
        place = Position(40.0 + number % 5 * 0.01, -111.0)
        sense(bus, "collision", (f"car-{number}", place))
        sense(bus, "obstacle", (f"car-{number}", place), (f"bus-{number}", place))
    job = runs.events()
    for _ in range(2):
        runs.process(job)
        sense(bus, "collision", ("last", HERE), ("but", HERE), ("not", HERE))
    runs.process(job)
    job._publish(job._core.advance(now_us()))
    core = AllKinds(RULES, job.dropped)
    verdicts = core.take(events(read_batch(spark, uri, ["events.*"])).toArrow())
    verdicts += core.advance(now_us())
    expected = {(one.alert_id, one.kind, one.until_us) for one in verdicts}
    found = {(one.id.bytes, one.topic, one.expires_us) for one in alerts(bus)}
    assert found == expected
    assert len(found) == 11


# Congestion


RULE = CongestionRule(
    cell_m=200.0, window_s=10.0, learn_s=60.0, on_after_s=30.0, min_vehicles=3, validity_s=300.0
)


def drive(bus: Bus, second: int, speed_mps: float, heading_deg: float, name: str) -> None:
    """Five vehicles of a stream report."""
    for number in range(5):
        telemetry = Telemetry(Position(40.76, -111.89 + number * 1e-4), heading_deg, speed_mps)
        bus.append(
            topics.REPORTS,
            b"%d" % second,
            f"{name}-{number}".encode(),
            (telemetry_fix(telemetry),),
        )


def traffic(spark: SparkSession, uri: str, bus: Bus) -> DataFrame:
    """Two minutes each way; then those to the east stand, and those to the west do not."""
    for second in range(0, 240, 2):
        drive(bus, second, 14.0 if second < 120 else 1.0, 90.0, "east")
        drive(bus, second, 14.0, 270.0, "west")
    bus.flush_now()
    # The bus stamps what it is given with the time of day: the recorded second stands instead.
    records = read_batch(spark, uri, [topics.REPORTS])
    return records.withColumn("time_us", records.value.cast("string").cast("long") * 1_000_000)


def test_a_jam_is_found_on_its_side_of_the_road(spark: SparkSession, bus: Bus, uri: str) -> None:
    rows = cell_speeds(positions(traffic(spark, uri, bus)), RULE).toArrow()
    assert rows.num_rows == 48
    core = TrafficCore(RULE)
    verdicts = core.take(rows)
    [verdict] = verdicts
    assert verdict.kind == "congestion"
    assert 150e6 <= verdict.at_us <= 170e6
    place = verdict.centre.lat, verdict.centre.lon
    east, west = 90.0, 270.0
    assert contains_point(verdict.area, *place, east, 160_000_000)
    assert not contains_point(verdict.area, *place, west, 160_000_000)


def test_cells_are_those_of_the_grid(spark: SparkSession) -> None:
    places = [
        (lat, lon, heading)
        for lat in (-90.0, -89.99, -45.3, 0.0, 12.345678, 60.0, 89.999, 90.0)
        for lon in (-180.0, -179.9999, -0.1, 0.0, 77.7, 179.9999, 180.0)
        for heading in (0.0, 22.4, 22.5, 180.0, 337.5, 359.9)
    ]
    frame = spark.createDataFrame(places, "lat double, lon double, heading double")
    for cell_m in (50.0, 200.0, 5000.0):
        grid = Grid(cell_m)
        found = frame.select(
            cell_of(grid, F.col("lat"), F.col("lon")), sector_column(F.col("heading"))
        ).collect()
        lats, lons, headings = zip(*places, strict=True)
        assert [row[0] for row in found] == grid.cell_of(lats, lons).tolist()
        assert [row[1] for row in found] == sector_of(headings).tolist()


def test_the_stream_of_reports_is_condensed(
    spark: SparkSession, bus: Bus, uri: str, tmp_path: Path
) -> None:
    job = CongestionJob(RULE, AlertsSink(bus, now_us()), tmp_path / "checkpoint")
    for second in range(3):
        drive(bus, second, 14.0, 90.0, "east")
    telemetry = Telemetry(HERE, None, None)
    bus.append(topics.REPORTS, b"", b"standing", (telemetry_fix(telemetry),))
    bus.append(topics.REPORTS, b"no place", b"lost")
    bus.flush_now()
    query = job.start(spark, uri)
    try:
        query.processAllAvailable()
        wait_for(lambda: job.state.position == 18, 10.0, "the offset to come")
    finally:
        query.stop()
    assert job.state.lag == 0
