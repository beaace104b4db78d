"""The position header as columns, a batch at a time by NumPy.

Spark's own expressions cannot reinterpret bytes as a double; taking it apart with them costs a
hundred times as much as passing the batch through a Python worker.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.pipeline.schemas import RECORD, joined, schema
from mercury.wire.records import MAX_HEADING_DEG, MAX_SPEED_MPS

FIX_COLUMNS = ("lat", "lon", "heading_deg", "speed_mps")
FIX_BYTES = 8 * len(FIX_COLUMNS)
WITH_FIX = joined(RECORD, schema(", ".join(f"{name} double" for name in FIX_COLUMNS)))
_ARROW = to_arrow_schema(WITH_FIX)
# A place beyond the earth stays what it is: whoever needs one counts it as wrong, not as unknown.
_LIMITS = (np.inf, np.inf, MAX_HEADING_DEG, MAX_SPEED_MPS)


def on_earth() -> Column:
    """Whether `lat` and `lon` are on Earth; NaN is not: for Spark it is above any number."""
    return (F.abs("lat") <= 90.0) & (F.abs("lon") <= 180.0)


def with_fix(records: DataFrame) -> DataFrame:
    """Add the senders' positions to records: null where unknown."""
    if set(FIX_COLUMNS) <= set(records.columns):
        return records  # the source has added them
    return records.select(*RECORD.names).mapInArrow(_read_fixes, WITH_FIX)


def _read_fixes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        headers = batch.column("position")
        whole = pc.fill_null(pc.equal(pc.binary_length(headers), FIX_BYTES), False)
        data = np.frombuffer(b"".join(headers.filter(whole).to_pylist()), np.uint8)
        columns = fix_columns(data, np.asarray(whole))
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=_ARROW)


def fix_columns(data: NDArray[np.uint8], whole: NDArray[np.bool_]) -> list[pa.Array]:
    """The numbers in headers that lie one after the other, for those records that have one."""
    numbers = np.full((len(whole), len(FIX_COLUMNS)), np.nan)
    numbers[whole] = data.view(">f8").reshape(-1, len(FIX_COLUMNS))
    numbers[~(np.abs(numbers) <= _LIMITS)] = np.nan
    # To Arrow, as to pandas, NaN is null.
    return [pa.array(column, from_pandas=True) for column in numbers.T]
