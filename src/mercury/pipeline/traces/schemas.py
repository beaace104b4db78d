"""The columns of a trace on its way in."""

from __future__ import annotations

from mercury.pipeline.schemas import joined, schema

# Where a row stood: files by name, in a file by its split and the row in it. Orders the rows as a
# reader of one file after the other would meet them. The original is for the rejects.
_ORIGIN = schema("source string, block bigint, row bigint, original string")
READ_ORDER = ["source", "block", "row"]
_PROBLEM = schema("problem string")

TEXTS = ["vehicle", "time", "lat", "lon", "speed", "heading"]
# What every format is read into: texts, not yet checked. `problem` is why a row cannot be read.
TEXT_ROW = joined(schema(", ".join(f"{name} string" for name in TEXTS)), _ORIGIN, _PROBLEM)

# A row that is understood, or has a problem; `late` is one that came after a newer of its vehicle.
FIX = joined(
    schema(
        "vehicle string, time_us bigint, lat double, lon double, speed_mps double,"
        " heading_deg double"
    ),
    _ORIGIN,
    _PROBLEM,
)
CHECKED = joined(FIX, schema("late boolean"))

# A report as the bus takes it.
REPORT = schema("time_us bigint, key binary, position binary, value binary")
