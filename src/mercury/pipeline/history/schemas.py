"""The columns of the stored tables: plain ones to ask for, and the record as it was."""

from __future__ import annotations

from mercury.pipeline.schemas import joined, schema

# What the record was on the bus: with these a replay is exact.
ORIGIN = schema(
    "topic string, partition int, offset bigint, key binary, position binary, value binary"
)
PLACES = schema("day string, tile string")  # in the folders' names

_PLACE = "lat double, lon double"
_SAID = schema("text string, values string")  # the values as JSON
REPORT_COLUMNS = schema(
    f"client string, time_us bigint, {_PLACE}, heading_deg double, speed_mps double"
)
EVENT_COLUMNS = joined(
    schema(f"kind string, id string, reporter string, time_us bigint, {_PLACE}"),
    schema("heading_deg double, speed_mps double, radius_m double, priority int"),
    _SAID,
)
# `kind` is of the event that is reported, else that of the message, which is alert or content;
# `subject` is the message's own topic; `ends_us` its expiry or the end of its area's validity,
# whichever is first; `area` is GeoJSON, and the position its centre.
ALERT_COLUMNS = joined(
    schema("id string, kind string, message_kind string, subject string, priority int"),
    schema("policy string, source string, destination string, time_us bigint, sent_us bigint"),
    schema(f"expires_us bigint, ends_us bigint, correlation string, area string, {_PLACE}"),
    _SAID,
)
# `waiting` of the recipients are not settled yet.
DELIVERY_COLUMNS = schema(
    "message string, source string, kind string, adapter string, time_us bigint, recipients int,"
    " waiting int"
)
REJECT_COLUMNS = schema("reason string, time_us bigint")
