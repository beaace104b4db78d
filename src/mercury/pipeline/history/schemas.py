"""The columns of the stored tables: decoded ones for queries, and the original record."""

from __future__ import annotations

from mercury.pipeline.schemas import joined, schema

# What the record was on the bus: with these a replay is exact.
ORIGIN = schema(
    "topic string, partition int, offset bigint, key binary, position binary, value binary"
)
PLACES = schema("day string, tile string")  # in the folders' names

_PLACE = "lat double, lon double"
_SAID = schema("text string, values string")
REPORT_COLUMNS = schema(
    f"client string, time_us bigint, {_PLACE}, heading_deg double, speed_mps double"
)
EVENT_COLUMNS = joined(
    schema(f"kind string, id string, reporter string, time_us bigint, {_PLACE}"),
    schema("heading_deg double, speed_mps double, radius_m double, priority int"),
    _SAID,
)
ALERT_COLUMNS = joined(
    schema("id string, kind string, message_kind string, subject string, priority int"),
    schema("policy string, source string, destination string, time_us bigint, sent_us bigint"),
    schema(f"expires_us bigint, ends_us bigint, correlation string, area string, {_PLACE}"),
    _SAID,
)
DELIVERY_COLUMNS = schema(
    "message string, source string, kind string, adapter string, time_us bigint, recipients int,"
    " waiting int"
)
REJECT_COLUMNS = schema("reason string, time_us bigint")

# For the reference, where a name does not say enough.
NOTES = {
    "kind": "of the event; of the message, where there is none",
    "message_kind": "alert, content",
    "subject": "the message's own topic",
    "ends_us": "expiry or end of the area's validity, whichever is first",
    "area": "GeoJSON; lat and lon are its centre",
    "values": "JSON",
    "waiting": "recipients that are not settled yet",
}
