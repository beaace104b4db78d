"""The columns of records and events, and how all schemas of the pipeline are written."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "string": StringType(),
}


def schema(ddl: str) -> StructType:
    """A schema as Spark's DDL writes it: Spark's own parser runs in Java."""
    fields = (column.split() for column in ddl.split(","))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in fields])


def joined(*parts: StructType) -> StructType:
    """One schema of several."""
    return StructType([field for part in parts for field in part.fields])


# A record of the bus, whichever bus it is. The header that the pipeline groups by travels as a
# column of its own: most jobs never look into the value.
RECORD = schema(
    "topic string, partition int, offset bigint, time_us bigint, key binary, position binary,"
    " value binary"
)
# A sensed event; `problem` says why a record cannot be read, and then the rest is null.
EVENT = schema(
    "kind string, time_us bigint, id binary, reporter string, lat double, lon double,"
    " heading_deg double, speed_mps double, problem string"
)
