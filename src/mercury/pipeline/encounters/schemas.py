"""The columns of encounters: what the job passes between its steps, and what comes out."""

from __future__ import annotations

from mercury.pipeline.schemas import joined, schema

# Where a client was, from one report to the next.
SEGMENT = schema("client string, from_us bigint, until_us bigint, lat double, lon double")
# The same in one tile and window: in its own tile it is seen, in those within reach it sees.
PIECE = joined(schema("tile bigint, window bigint"), SEGMENT, schema("seen boolean, sees boolean"))
_PAIR = schema("client string, other string, from_us bigint, until_us bigint")
_NEAREST = schema("nearest_m double, nearest_us bigint, lat double, lon double")
# A span of a pair within reach; `near_us` is null where it did not come within the radius.
CONTACT = joined(_PAIR, schema("near_us bigint"), _NEAREST)
ENCOUNTER = joined(_PAIR, schema("duration_s double"), _NEAREST)

# For the reference, where a name does not say enough.
NOTES = {"lat": "of the other, when it was nearest", "lon": "of the other, when it was nearest"}
