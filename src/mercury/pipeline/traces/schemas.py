"""The columns of a trace on its way in."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

# Where a row stood: files by name, in a file by its split and the row in it. Orders the rows as a
# reader of one file after the other would meet them.
_ORIGIN = [
    StructField("source", StringType(), nullable=False),
    StructField("block", LongType(), nullable=False),
    StructField("row", LongType(), nullable=False),
    StructField("original", StringType()),  # for the rejects
]
READ_ORDER = ["source", "block", "row"]

TEXTS = ["vehicle", "time", "lat", "lon", "speed", "heading"]
# What every format is read into: texts, not yet believed. `problem` is why a row cannot be read.
TEXT_ROW = StructType(
    [*(StructField(name, StringType()) for name in TEXTS), *_ORIGIN,
     StructField("problem", StringType())]
)  # fmt: skip

# A row that is understood, or has a problem; `late` is one that came after a newer of its vehicle.
FIX = StructType(
    [
        StructField("vehicle", StringType()),
        StructField("time_us", LongType()),
        StructField("lat", DoubleType()),
        StructField("lon", DoubleType()),
        StructField("speed_mps", DoubleType()),
        StructField("heading_deg", DoubleType()),
        *_ORIGIN,
        StructField("problem", StringType()),
    ]
)
CHECKED = StructType([*FIX.fields, StructField("late", BooleanType())])

# A report as the bus takes it.
REPORT = StructType(
    [
        StructField("time_us", LongType(), nullable=False),
        StructField("key", BinaryType(), nullable=False),
        StructField("position", BinaryType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
    ]
)
