"""The columns of the stored tables: plain ones to ask for, and the record as it was."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_TEXT, _WHOLE, _REAL, _BYTES = StringType(), LongType(), DoubleType(), BinaryType()


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, type) for name, type in types.items()])


# What the record was on the bus: with these a replay is exact.
ORIGIN = columns(
    topic=_TEXT,
    partition=IntegerType(),
    offset=_WHOLE,
    key=_BYTES,
    position=_BYTES,
    value=_BYTES,
)
PLACES = columns(day=_TEXT, tile=_TEXT)  # in the folders' names

REPORT_COLUMNS = columns(
    client=_TEXT, time_us=_WHOLE, lat=_REAL, lon=_REAL, heading_deg=_REAL, speed_mps=_REAL
)
EVENT_COLUMNS = columns(
    kind=_TEXT,
    id=_TEXT,
    reporter=_TEXT,
    time_us=_WHOLE,
    lat=_REAL,
    lon=_REAL,
    heading_deg=_REAL,
    speed_mps=_REAL,
    radius_m=_REAL,
    priority=IntegerType(),
    text=_TEXT,
    values=_TEXT,  # JSON
)
ALERT_COLUMNS = columns(
    id=_TEXT,
    kind=_TEXT,  # of the event that is told of; of the message, if it tells of none
    message_kind=_TEXT,  # alert, content
    subject=_TEXT,  # the message's own topic
    priority=IntegerType(),
    policy=_TEXT,
    source=_TEXT,
    destination=_TEXT,
    time_us=_WHOLE,
    sent_us=_WHOLE,
    expires_us=_WHOLE,
    ends_us=_WHOLE,  # expiry or end of the area's validity, whichever is first
    correlation=_TEXT,
    area=_TEXT,  # GeoJSON
    lat=_REAL,  # the area's centre
    lon=_REAL,
    text=_TEXT,
    values=_TEXT,  # JSON
)
DELIVERY_COLUMNS = columns(
    message=_TEXT,
    source=_TEXT,
    kind=_TEXT,
    adapter=_TEXT,
    time_us=_WHOLE,
    recipients=IntegerType(),
    waiting=IntegerType(),  # so many of them are not settled yet
)
REJECT_COLUMNS = columns(reason=_TEXT, time_us=_WHOLE)


def joined(*parts: StructType) -> StructType:
    """One schema of several."""
    return StructType([field for part in parts for field in part.fields])
