"""Positions as reports on the bus, as if the vehicles had sent them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.bus import Bus
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.identity import derived_id
from mercury.model.message import Address, Kind, Message, Telemetry
from mercury.pipeline.traces.schemas import REPORT
from mercury.wire import encode
from mercury.wire.records import POSITION, telemetry_fix

_ARROW = to_arrow_schema(REPORT)
_COLUMNS = ["vehicle", "time_us", "lat", "lon", "speed_mps", "heading_deg"]
_ADAPTER = Address.adapter("import")
# The driver holds one part at a time.
_PART_ROWS = 50_000
_FLUSH_ROWS = 1024


def reports(positions: DataFrame, rows: int) -> DataFrame:
    """Positions as records of the topic `reports`, in the order of time."""
    parts = max(1, -(-rows // _PART_ROWS))
    ordered = positions.select(_COLUMNS).repartitionByRange(parts, "time_us")
    return ordered.sortWithinPartitions("time_us", "vehicle").mapInArrow(_encode, REPORT)


def append(
    records: DataFrame,
    bus: Bus,
    speed: float | None,
    on_appended: Callable[[int], None] = lambda count: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Append reports, `speed` times as fast as they were made or without waiting; return how many.

    What was appended is made durable before each wait, and at the end.
    """
    count = 0
    begun_at, begun_us = clock(), None
    for record in records.toLocalIterator(prefetchPartitions=True):
        if speed is not None:
            begun_us = record.time_us if begun_us is None else begun_us
            wait_s = begun_at + (record.time_us - begun_us) / (speed * 1e6) - clock()
            if wait_s > 0.0:
                bus.flush_now()
                on_appended(count)
                sleep(wait_s)
        headers = ((POSITION, bytes(record.position)),)
        bus.append(topics.REPORTS, bytes(record.value), bytes(record.key), headers)
        count += 1
        if count % _FLUSH_ROWS == 0:
            bus.flush_now()
            on_appended(count)
    bus.flush_now()
    on_appended(count)
    return count


def report(
    vehicle: str,
    time_us: int,
    lat: float,
    lon: float,
    speed_mps: float | None,
    heading_deg: float | None,
) -> tuple[int, bytes, bytes, bytes]:
    """One position as a record: its time, key, position header and envelope."""
    telemetry = Telemetry(
        Position(lat, lon), heading_deg=heading_deg, speed_mps=speed_mps, time_us=time_us
    )
    key = vehicle.encode()
    # A trace that is imported again brings the same ids, so that doubles can be told.
    parent = (time_us // 1000).to_bytes(6, "big") + time_us.to_bytes(8, "big") + key
    message = Message(
        kind=Kind.REPORT,
        source=Address.client(vehicle),
        destination=_ADAPTER,
        payload=telemetry,
        id=UUID(bytes=derived_id(parent, "imported")),
        sent_us=time_us,
    )
    return time_us, key, telemetry_fix(telemetry)[1], encode(message)


def _encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
        columns = zip(*(report(*row) for row in rows), strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
