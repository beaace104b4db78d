"""Positions as reports on the bus, as if the vehicles had sent them."""

from __future__ import annotations

import math
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
from mercury.pipeline.history.replay import Replay, Stored
from mercury.pipeline.traces.schemas import REPORT
from mercury.wire import encode
from mercury.wire.records import telemetry_fix

_ARROW = to_arrow_schema(REPORT)
_COLUMNS = ["vehicle", "time_us", "lat", "lon", "speed_mps", "heading_deg"]
_ADAPTER = Address.adapter("import")
# The driver holds one part at a time.
_PART_ROWS = 50_000


def reports(positions: DataFrame, rows: int) -> DataFrame:
    """Positions as records of the topic `reports`, in the order of time."""
    parts = max(1, -(-rows // _PART_ROWS))
    ordered = positions.select(_COLUMNS).repartitionByRange(parts, "time_us")
    return ordered.sortWithinPartitions("time_us", "vehicle").mapInArrow(_encode, REPORT)


def append(
    records: DataFrame,
    bus: Bus,
    speed: float = math.inf,
    on_appended: Callable[[int], None] = lambda count: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Append reports, `speed` times as fast as they were made; return how many."""
    work = Replay(
        bus, speed, clock=clock, sleep=sleep, progress=lambda count, time_us: on_appended(count)
    )
    return work.run(
        Stored(row.time_us, topics.REPORTS, bytes(row.key), bytes(row.position), bytes(row.value))
        for row in records.toLocalIterator(prefetchPartitions=True)
    )


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
    # A trace that is imported again brings the same ids, so that duplicates can be recognised.
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
        yield pa.record_batch(list(columns), schema=_ARROW)
