"""The common queries of the stored tables: each takes rows and returns rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mercury.geo.containment import contains
from mercury.geo.outline import bounds
from mercury.geo.overlap import overlaps
from mercury.model.area import Area
from mercury.model.geojson import area_from_geojson
from mercury.pipeline.history.tiles import tiles_over

TRACK = ("time_us", "lat", "lon", "heading_deg", "speed_mps")


def within(rows: DataFrame, from_us: int | None = None, to_us: int | None = None) -> DataFrame:
    """The rows from one time until just before another."""
    if from_us is not None:
        rows = rows.where(F.col("time_us") >= from_us)
    return rows if to_us is None else rows.where(F.col("time_us") < to_us)


def track(reports: DataFrame, client: str) -> DataFrame:
    """Where a vehicle was, oldest first."""
    return reports.where(F.col("client") == client).select(*TRACK).orderBy("time_us", "offset")


def last_known(reports: DataFrame, client: str) -> DataFrame:
    """Where a vehicle was last: one row, or none."""
    rows = reports.where(F.col("client") == client)
    return rows.orderBy(F.desc("time_us"), F.desc("offset")).limit(1).select(*TRACK)


def inside(rows: DataFrame, area: Area) -> DataFrame:
    """The rows whose position is in an area."""
    south, west, north, east = bounds(area.shape)
    tiles = tiles_over(south, west, north, east)
    if tiles is not None:
        rows = rows.where(F.col("tile").isin(tiles))
    near = F.col("lat").between(south, north)
    if west <= east:
        near = near & F.col("lon").between(west, east)
    return rows.where(near).mapInArrow(partial(keep_inside, area), rows.schema)


def reaching(alerts: DataFrame, area: Area) -> DataFrame:
    """The alerts whose area meets another."""
    return alerts.mapInArrow(partial(_keep_reaching, area), alerts.schema)


def happened(events: DataFrame, alerts: DataFrame, kind: str | None = None) -> DataFrame:
    """Events and alerts as one list, oldest first."""
    both = _brief(events, "event", "reporter").unionByName(_brief(alerts, "alert", "source"))
    if kind is not None:
        both = both.where(F.col("kind") == kind)
    return both.orderBy("time_us", "what", "id")


def traffic(reports: DataFrame) -> DataFrame:
    """One row: the number of reports and vehicles, and the speed."""
    return reports.agg(*_statistics())


def busiest(reports: DataFrame, top: int) -> DataFrame:
    """The tiles with the most reports."""
    return reports.groupBy("tile").agg(*_statistics()).orderBy(F.desc("reports"), "tile").limit(top)


def _statistics() -> tuple[Column, ...]:
    return (
        F.count("*").alias("reports"),
        F.countDistinct("client").alias("vehicles"),
        F.avg("speed_mps").alias("mean_speed_mps"),
    )


def _brief(rows: DataFrame, what: str, who: str) -> DataFrame:
    names = ("time_us", "kind", "id", "lat", "lon", "text")
    return rows.select(F.lit(what).alias("what"), F.col(who).alias("who"), *names)


def keep_inside(area: Area, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows whose position is in an area, at any time."""
    for batch in batches:
        lats, lons = (np.asarray(batch.column(name), dtype=np.float64) for name in ("lat", "lon"))
        yield batch.filter(pa.array(contains(area.shape, lats, lons)))


def _keep_reaching(area: Area, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        # To everyone, or to a group: not to this area in particular.
        written = batch.filter(pc.is_valid(batch.column("area")))
        areas = [area_from_geojson(text) for text in written.column("area").to_pylist()]
        meets = [overlaps(one.shape, area.shape) for one in areas]
        yield written.filter(pa.array(meets, pa.bool_()))
