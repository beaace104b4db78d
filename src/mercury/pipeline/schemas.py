"""The columns of everything the pipeline reads and writes."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

# A record of the bus, whichever bus it is. The header that the pipeline groups by travels as a
# column of its own: most jobs never look into the value.
RECORD = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("time_us", LongType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("position", BinaryType()),
        StructField("value", BinaryType()),
    ]
)

# An event that somebody sensed; `problem` says why a record is none, and then the rest is null.
EVENT = StructType(
    [
        StructField("kind", StringType(), nullable=False),
        StructField("time_us", LongType(), nullable=False),
        StructField("id", BinaryType()),
        StructField("reporter", StringType()),
        StructField("lat", DoubleType()),
        StructField("lon", DoubleType()),
        StructField("heading_deg", DoubleType()),
        StructField("speed_mps", DoubleType()),
        StructField("problem", StringType()),
    ]
)
