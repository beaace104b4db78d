"""The position header as columns, a batch at a time by NumPy.

Spark's own expressions cannot reinterpret bytes as a double; taking it apart with them costs a
hundred times as much as passing the batch through a Python worker.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, StructField, StructType

from mercury.pipeline.schemas import RECORD

PLACE_COLUMNS = ("lat", "lon", "heading_deg", "speed_mps")
PLACE_BYTES = 8 * len(PLACE_COLUMNS)
PLACED = StructType([*RECORD.fields, *(StructField(name, DoubleType()) for name in PLACE_COLUMNS)])
_ARROW = to_arrow_schema(PLACED)


def placed(records: DataFrame) -> DataFrame:
    """Records, and where their senders were: null where that is not known."""
    return records.select(*RECORD.names).mapInArrow(_read_places, PLACED)


def _read_places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        headers = batch.column("position").to_pylist()
        whole = [one is not None and len(one) == PLACE_BYTES for one in headers]
        data = b"".join([one for one, good in zip(headers, whole, strict=True) if good])
        numbers = np.full((len(headers), len(PLACE_COLUMNS)), np.nan)
        numbers[whole] = np.frombuffer(data, ">f8").reshape(-1, len(PLACE_COLUMNS))
        numbers[~np.isfinite(numbers)] = np.nan
        # To Arrow, as to pandas, NaN is null.
        columns = [pa.array(column, from_pandas=True) for column in numbers.T]
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=_ARROW)
