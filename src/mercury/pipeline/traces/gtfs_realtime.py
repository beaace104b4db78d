"""GTFS-realtime: vehicle positions as transit agencies publish them, one feed message a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from pyspark.sql import DataFrame, SparkSession

from mercury.pipeline.traces.columns import ColumnNames, Reading
from mercury.pipeline.traces.inputs import Alike
from mercury.pipeline.traces.interpret import fixes
from mercury.pipeline.traces.text_rows import TextRow, UnreadableFileError, read_with

_COLUMNS = ColumnNames("vehicle.id", ("timestamp",), "latitude", "longitude", "speed", "bearing")


def inspect(paths: Sequence[str], reading: Reading) -> tuple[list[Alike], list[str]]:
    """All files have the same fields."""
    import_module("google.transit")  # of another extra, and better missed before Spark starts
    known = replace(
        reading, columns=_COLUMNS, time_format="epoch-s", time_origin_us=0, speed_unit="m/s"
    )
    return [Alike(list(paths), known)], []


def read(spark: SparkSession, found: Alike) -> DataFrame:
    """The fixes of feed messages; other entities than vehicles are none of ours."""
    return fixes(read_with(spark, found.paths, read_rows), found.reading)


def read_rows(path: str) -> Iterator[TextRow]:
    """The rows of one file."""
    from google.transit import gtfs_realtime_pb2 as pb  # optional, and only workers need it

    try:
        feed = pb.FeedMessage.FromString(Path(path).read_bytes())
    except DecodeError as error:
        raise UnreadableFileError(f"no GTFS-realtime feed message: {error}") from None
    for entity in feed.entity:
        if not entity.HasField("vehicle"):
            continue
        vehicle = entity.vehicle
        position = vehicle.position
        lat, lon, speed, bearing = (
            repr(getattr(position, name)) if position.HasField(name) else None
            for name in ("latitude", "longitude", "speed", "bearing")
        )
        # A vehicle without a time of its own is where it is when the feed was made.
        time_s = vehicle.timestamp or feed.header.timestamp
        yield TextRow(
            vehicle.vehicle.id or vehicle.vehicle.label or entity.id,
            str(time_s) if time_s else None,
            lat,
            lon,
            speed,
            bearing,
            json.dumps(MessageToDict(entity), ensure_ascii=False),
        )
