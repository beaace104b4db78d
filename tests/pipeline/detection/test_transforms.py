"""Records as columns, against the codec; and what is no record of ours."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import SparkSession

from mercury.detection import CongestionRule
from mercury.model.area import Position
from mercury.model.message import Address, Attributes, Event, Kind, Message
from mercury.pipeline.detection.transforms import cell_speeds, events, positions
from mercury.pipeline.schemas import RECORD
from mercury.wire import encode
from mercury.wire.records import fix_header


def record(
    topic: str, value: bytes, *, place: bytes | None = None, key: bytes = b"car-1"
) -> tuple[object, ...]:
    return (topic, 0, 1, 77, key, place, value)


def event(position: Position | None = None, source: Address | None = None, **more: object) -> bytes:
    return encode(
        Message(
            kind=Kind.EVENT,
            source=source or Address.client("car-1"),
            destination=Address.broker(),
            payload=Event("collision", position, **more),  # type: ignore[arg-type]
        )
    )


def test_reports_become_columns(spark: SparkSession) -> None:
    _, here = fix_header(40.5, -111.25, 90.0, 13.5)
    _, unknown = fix_header(math.nan, math.nan, math.nan, math.nan)
    rows = [
        record("reports", b"", place=here),
        record("reports", b"", place=unknown),
        record("reports", b"", place=b"broken"),
        record("reports", b""),
    ]
    (found,) = positions(spark.createDataFrame(rows, RECORD)).collect()
    assert found.asDict() == {
        "client": "car-1", "time_us": 77, "lat": 40.5, "lon": -111.25, "heading_deg": 90.0,
        "speed_mps": 13.5,
    }  # fmt: skip


@pytest.mark.parametrize("heading_deg", [1e25, -1e300, math.inf, 361.0])
@pytest.mark.parametrize("speed_mps", [1e25, -math.inf, 1001.0])
def test_a_motion_that_cannot_be_is_unknown(
    spark: SparkSession, heading_deg: float, speed_mps: float
) -> None:
    """One such report must not fail a batch: Spark would try that again for ever."""
    _, wrong = fix_header(40.5, -111.25, heading_deg, speed_mps)
    _, right = fix_header(40.5, -111.25, 359.0, 13.5)
    rows = [record("reports", b"", place=place) for place in (wrong, right)]
    found = positions(spark.createDataFrame(rows, RECORD))
    assert [(row.heading_deg, row.speed_mps) for row in found.collect()] == [
        (None, None),
        (359.0, 13.5),
    ]
    (cell,) = cell_speeds(found, CongestionRule()).collect()
    assert (cell.vehicles, cell.speed_mps, cell.sector) == (1, 13.5, 0)


def test_events_are_where_they_say_or_where_their_sender_was(spark: SparkSession) -> None:
    _, here = fix_header(40.5, -111.25, 90.0, 13.5)
    rows = [
        record("events.collision", event(Position(1.0, 2.0), speed_mps=3.0), place=here),
        record("events.collision", event(), place=here),
    ]
    there, at_sender = events(spark.createDataFrame(rows, RECORD)).collect()
    assert (there.kind, there.time_us, there.reporter) == ("collision", 77, "car-1")
    assert (there.lat, there.lon, there.speed_mps, there.heading_deg) == (1.0, 2.0, 3.0, 90.0)
    assert (at_sender.lat, at_sender.lon, at_sender.speed_mps) == (40.5, -111.25, 13.5)
    assert len(there.id) == 16
    assert there.problem is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\xff\xff\xff", "malformed"),
        (b"", "version"),
        (event(), "no-position"),
        (event(Position(1.0, 2.0), Address.broker("b")), "malformed"),
        (
            encode(
                Message(
                    kind=Kind.CONTENT,
                    source=Address.client("c"),
                    destination=Address.broker(),
                    payload=Attributes({}),
                )
            ),
            "no-event",
        ),
    ],
    ids=["no-envelope", "empty", "nowhere", "no-reporter", "content"],
)
def test_poison_is_named_and_passed_by(spark: SparkSession, value: bytes, problem: str) -> None:
    good = event(Position(1.0, 2.0))
    rows = [record("events.x", good), record("events.x", value), record("events.x", good)]
    found = events(spark.createDataFrame(rows, RECORD)).collect()
    assert [row.problem for row in found] == [None, problem, None]
    assert found[1].kind == "x"
