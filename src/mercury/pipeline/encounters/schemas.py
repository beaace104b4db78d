"""The columns of meetings: what the job passes between its steps, and what comes out."""

from __future__ import annotations

from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType

from mercury.pipeline.history.schemas import columns, joined

_TEXT, _WHOLE, _REAL = StringType(), LongType(), DoubleType()

# Where somebody was, from one report to the next.
STAND = columns(client=_TEXT, from_us=_WHOLE, until_us=_WHOLE, lat=_REAL, lon=_REAL)
# The same in one tile and window: in its own tile it is seen, in those within reach it sees.
PIECE = joined(
    columns(tile=_WHOLE, window=_WHOLE), STAND, columns(seen=BooleanType(), sees=BooleanType())
)
_NEAREST = columns(
    nearest_m=_REAL,
    nearest_us=_WHOLE,
    lat=_REAL,  # of the other, when it was nearest
    lon=_REAL,
)
# A span of a pair within reach; `near_us` is null where it did not come within the radius.
CONTACT = joined(
    columns(client=_TEXT, other=_TEXT, from_us=_WHOLE, until_us=_WHOLE, near_us=_WHOLE), _NEAREST
)
MEETING = joined(
    columns(client=_TEXT, other=_TEXT, from_us=_WHOLE, until_us=_WHOLE, duration_s=_REAL), _NEAREST
)
