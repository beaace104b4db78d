"""From records to what they say: each function takes a DataFrame and returns one.

Streams and batches run the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.model import topics
from mercury.model.errors import PacketError
from mercury.pipeline.positions import double_at
from mercury.pipeline.schemas import EVENT
from mercury.wire import parse
from mercury.wire.records import POSITION, read_place

_EVENT_COLUMNS = ["topic", "time_us", "position", "value"]
_EVENT_ARROW = to_arrow_schema(EVENT)
_NOTHING = (None, None, None, None, None, None)


def events(records: DataFrame) -> DataFrame:
    """The events that records of the topics `events.*` hold."""
    return records.select(_EVENT_COLUMNS).mapInArrow(_read_events, EVENT)


def _read_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _EVENT_COLUMNS]
        rows = [_read_event(*row) for row in zip(*columns, strict=True)]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), _EVENT_ARROW, strict=True)
        ]
        if rows:
            yield pa.RecordBatch.from_arrays(arrays, schema=_EVENT_ARROW)


def _read_event(topic: str, time_us: int, position: bytes | None, value: bytes) -> tuple[Any, ...]:
    kind = topic.removeprefix(topics.EVENTS_PREFIX)
    try:
        envelope = parse(value)
        event = envelope.event
        if envelope.WhichOneof("payload") != "event":
            raise PacketError("no-event")
        place = read_place(((POSITION, position),)) if position else None
        if event.HasField("position"):
            lat, lon = event.position.lat, event.position.lon
        elif place is not None:
            lat, lon = place.lat, place.lon
        else:
            raise PacketError("no-position")
        if not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
            raise PacketError("bad-coordinates")
        reporter = envelope.source.client or envelope.source.service
        if not reporter or len(envelope.id) != 16:
            raise PacketError("malformed")
    except PacketError as error:
        return (kind, time_us, *_NOTHING, error.reason)
    speed = event.speed_mps if event.HasField("speed_mps") else math.nan
    heading = math.nan
    if place is not None:
        heading = place.heading_deg
        speed = place.speed_mps if math.isnan(speed) else speed
    return (kind, time_us, envelope.id, reporter, lat, lon, heading, speed, None)


def positions(records: DataFrame) -> DataFrame:
    """Who was where, and how fast: reports as plain columns, those without a place left out."""
    lat, lon = double_at(F.col("position"), 0), double_at(F.col("position"), 1)
    frame = records.select(
        F.col("key").cast("string").alias("client"),
        "time_us",
        lat.alias("lat"),
        lon.alias("lon"),
        double_at(F.col("position"), 2).alias("heading_deg"),
        double_at(F.col("position"), 3).alias("speed_mps"),
    )
    return frame.where((F.abs("lat") <= 90.0) & (F.abs("lon") <= 180.0))
