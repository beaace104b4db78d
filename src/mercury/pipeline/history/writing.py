"""A worker's part of storing history: records to rows, rows to Parquet files by day and tile.

One pass: a task writes what it has read, without passing rows back to Spark. The files of a failed
task are in no journal, and removed with their folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.bus.grouping import rank_of
from mercury.pipeline.history.days import DAY_US, day_of
from mercury.pipeline.history.decoding import read_alert, read_event, read_receipts, read_rows
from mercury.pipeline.history.journal import Offsets
from mercury.pipeline.history.schemas import ORIGIN
from mercury.pipeline.history.tables import FILE_ROWS, REJECTS, TABLES, Table
from mercury.pipeline.history.tiles import tile_numbers, tile_of
from mercury.pipeline.schemas import joined, schema
from mercury.pipeline.spark.fix_columns import FIX_BYTES, FIX_COLUMNS

# What a task reports: a file that it wrote, or how many records it took from a partition of the
# bus, how far, and with what problem.
WRITTEN = schema(
    "table string, file string, topic string, partition int, problem string, last bigint,"
    " last_us bigint, rows bigint"
)
_WRITTEN_ARROW = to_arrow_schema(WRITTEN)


def write(
    staging: str, offsets: Offsets, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write records that are not stored yet under a folder; returns a report (`WRITTEN`)."""
    gathered = list(batches)
    if not gathered:
        return
    records = _not_stored(pa.Table.from_batches(gathered), offsets)
    written: list[pa.Table] = []
    bad: list[pa.Table] = []
    for table in TABLES.values():
        own = _of_table(records, table)
        if not own.num_rows:
            continue
        read = _READERS.get(table.name)
        rows = _read_reports(own) if read is None else read_rows(read, table.columns, own)
        written.append(_spans(table, rows))
        good = pc.is_null(rows.column("problem"))
        bad.append(rows.filter(pc.invert(good)))
        written += _write_table(Path(staging), table, rows.filter(good))
    if bad:
        kept = ["problem", "time_us", *ORIGIN.names]
        rejects = pa.concat_tables([rows.select(kept) for rows in bad])
        rejects = rejects.rename_columns(["reason", *kept[1:]])
        written += _write_table(Path(staging), TABLES[REJECTS], rejects)
    # Missing columns are null.
    whole = pa.concat_tables([_WRITTEN_ARROW.empty_table(), *written], promote_options="permissive")
    yield from whole.cast(_WRITTEN_ARROW).to_batches()


# Rows


def _read_reports(records: pa.Table) -> pa.Table:
    """Records of `reports` as rows; `problem` says why one cannot be read."""
    keys, texts = _texts(records.column("key"))
    whole = pc.equal(pc.fill_null(pc.binary_length(records.column("position")), 0), FIX_BYTES)
    problem = pc.case_when(
        pc.make_struct(pc.invert(keys), pc.invert(whole), _off_earth(records)),
        "bad-key",
        "no-position",
        "bad-coordinates",
    )
    return records.append_column("client", texts).append_column("problem", problem)


_READERS = {"events": read_event, "alerts": read_alert, "deliveries": read_receipts}


def _texts(keys: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Which keys are text, and the keys; null where one is not, as readers need text."""
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.chunked_array([pa.array(map(_text, keys.to_pylist()), pa.string())])
    return pc.is_valid(texts), texts


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _off_earth(records: pa.Table) -> pa.ChunkedArray:
    far = pc.or_(
        pc.greater(pc.abs(records.column("lat")), 90.0),
        pc.greater(pc.abs(records.column("lon")), 180.0),
    )
    return pc.fill_null(far, True)  # a null is no position


def _of_table(records: pa.Table, table: Table) -> pa.Table:
    topic = records.column("topic")
    names = [one for one in pc.unique(topic).to_pylist() if rank_of(table.topics, one) is not None]
    return records.filter(pc.is_in(topic, pa.array(names, pa.string())))


def _not_stored(records: pa.Table, offsets: Offsets) -> pa.Table:
    """Which records are new: by time, too, as a new bus restarts its offsets."""
    stored = []
    for name, (offset, time_us) in offsets.items():
        topic, _, partition = name.rpartition("/")
        conditions = (
            pc.equal(records.column("topic"), topic),
            pc.equal(records.column("partition"), int(partition)),
            pc.less_equal(records.column("offset"), offset),
            pc.less_equal(records.column("time_us"), time_us),
        )
        stored.append(reduce(pc.and_, conditions))
    return records.filter(pc.invert(reduce(pc.or_, stored))) if stored else records


def _spans(table: Table, rows: pa.Table) -> pa.Table:
    found = rows.group_by(["topic", "partition", "problem"]).aggregate(
        [("offset", "max"), ("time_us", "max"), ([], "count_all")]
    )
    names = {"offset_max": "last", "time_us_max": "last_us", "count_all": "rows"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    return found.append_column("table", pa.array([table.name] * found.num_rows))


# Files


def _write_table(staging: Path, table: Table, rows: pa.Table) -> Iterator[pa.Table]:
    """Write rows by day and tile, a vehicle's together; report the files."""
    if not rows.num_rows:
        return
    columns = to_arrow_schema(joined(table.columns, ORIGIN))
    days = rows.column("time_us").to_numpy() // DAY_US
    tiles = _tiles(rows)
    order = np.lexsort(
        (rows.column("offset"), rows.column("time_us"), _ranks(rows.column("key")), tiles, days)
    )
    rows = rows.select(columns.names).cast(columns).take(pa.array(order))
    days, tiles = days[order], tiles[order]
    changes = np.flatnonzero((np.diff(days) != 0) | (np.diff(tiles) != 0)) + 1
    files = []
    for begin, end in zip([0, *changes], [*changes, len(order)], strict=True):
        place = f"{table.name}/day={day_of(int(days[begin]) * DAY_US)}/tile={tile_of(tiles[begin])}"
        (staging / place).mkdir(parents=True, exist_ok=True)
        for first in range(begin, end, FILE_ROWS):
            file = f"{place}/{uuid.uuid4().hex}.parquet"
            part = rows.slice(first, min(FILE_ROWS, end - first))
            pq.write_table(part, staging / file, compression="zstd")
            files.append(file)
    yield pa.table({"table": [table.name] * len(files), "file": files})


def _tiles(rows: pa.Table) -> NDArray[np.int64]:
    if not set(FIX_COLUMNS[:2]) <= set(rows.column_names):
        return np.full(rows.num_rows, -1, np.int64)  # undecodable records have no position
    lat, lon = (rows.column(name).to_numpy() for name in ("lat", "lon"))
    return tile_numbers(lat, lon)


def _ranks(keys: pa.ChunkedArray) -> NDArray[np.int64]:
    """Numbers in the order of the keys."""
    known = pc.unique(keys)
    return np.asarray(pc.index_in(keys, known.take(pc.sort_indices(known))), dtype=np.int64)
