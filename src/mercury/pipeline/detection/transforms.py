"""Decodes and aggregates records: each function takes a DataFrame and returns one.

Streams and batches run the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.detection import CongestionRule
from mercury.geo.grid import ROW, SECTOR_DEG, SECTORS, Grid
from mercury.model import topics
from mercury.model.errors import PacketError
from mercury.pipeline.schemas import EVENT
from mercury.pipeline.sensed import read_sensed
from mercury.pipeline.spark.fix_columns import FIX_COLUMNS, on_earth, with_fix

_EVENT_COLUMNS = ["topic", "time_us", "position", "value"]
_EVENT_ARROW = to_arrow_schema(EVENT)
_NOTHING = (None, None, None, None, None, None)


def events(records: DataFrame) -> DataFrame:
    """The events in records of the topics `events.*`."""
    return records.select(_EVENT_COLUMNS).mapInArrow(_read_events, EVENT)


def _read_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _EVENT_COLUMNS]
        rows = [_read_event(*row) for row in zip(*columns, strict=True)]
        if rows:
            yield pa.record_batch(list(zip(*rows, strict=True)), schema=_EVENT_ARROW)


def _read_event(topic: str, time_us: int, position: bytes | None, value: bytes) -> tuple[Any, ...]:
    kind = topic.removeprefix(topics.EVENTS_PREFIX)
    try:
        envelope, fix = read_sensed(position, value)
        if fix is None:
            raise PacketError("no-position")
        reporter = envelope.source.client or envelope.source.service
        if not reporter or len(envelope.id) != 16:
            raise PacketError("malformed")
    except PacketError as error:
        return (kind, time_us, *_NOTHING, error.reason)
    return (kind, time_us, envelope.id, reporter, *fix, None)


def positions(records: DataFrame) -> DataFrame:
    """Reports as plain columns of position and speed; those without a position are left out."""
    return (
        with_fix(records)
        .where(on_earth())
        .select(F.col("key").cast("string").alias("client"), "time_us", *FIX_COLUMNS)
    )


def cell_speeds(
    reports: DataFrame, rule: CongestionRule, *, watermark: str | None = None
) -> DataFrame:
    """How fast traffic was, by window, cell and direction: what the congestion core takes.

    A stream emits a window when the watermark passes its end.
    """
    moving = reports.where("speed_mps IS NOT NULL AND heading_deg IS NOT NULL").select(
        "client",
        "speed_mps",
        F.timestamp_micros("time_us").alias("time"),
        cell_of(Grid(rule.cell_m), F.col("lat"), F.col("lon")).alias("cell"),
        sector_of(F.col("heading_deg")).alias("sector"),
    )
    if watermark is not None:
        moving = moving.withWatermark("time", watermark)
    window = F.window("time", f"{rule.window_us} microseconds")
    grouped = moving.groupBy(window.alias("window"), "cell", "sector").agg(
        F.approx_count_distinct("client").alias("vehicles"),
        F.avg("speed_mps").alias("speed_mps"),
    )
    return grouped.select(
        F.unix_micros("window.start").alias("window_us"), "cell", "sector", "vehicles", "speed_mps"
    )


def cell_statistics(reports: DataFrame, grid: Grid, window_us: int) -> DataFrame:
    """How many reports, and how fast, by cell and window."""
    grouped = reports.groupBy(
        cell_of(grid, F.col("lat"), F.col("lon")).alias("cell"),
        (F.col("time_us") - F.col("time_us") % window_us).alias("window_us"),
    )
    return grouped.agg(
        F.count("*").alias("reports"),
        F.avg("speed_mps").alias("speed_mps"),
        F.min("speed_mps").alias("slowest_mps"),
        F.max("speed_mps").alias("fastest_mps"),
    )


def cell_of(grid: Grid, lat: Column, lon: Column) -> Column:
    """The cell that a position is in, as `Grid.cell_of` says."""
    row = F.least(F.floor((lat + 90.0) / grid.step_deg), F.lit(grid.rows - 1))
    middle = F.radians((row + 0.5) * grid.step_deg - 90.0)
    columns = F.greatest(F.floor(F.cos(middle) * 360.0 / grid.step_deg), F.lit(1))
    column = F.floor((lon + 180.0) / 360.0 * columns) % columns
    return row * F.lit(ROW) + column


def sector_of(heading_deg: Column) -> Column:
    """The eighth of the compass that a heading is in."""
    return (F.floor((heading_deg + SECTOR_DEG / 2.0) / SECTOR_DEG) % SECTORS).cast("int")
