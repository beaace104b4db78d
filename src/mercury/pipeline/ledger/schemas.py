"""The columns of the ledger: what the job passes between its steps, and what is stored."""

from __future__ import annotations

from mercury.pipeline.schemas import joined, schema

# A client's position at a report, inside a message's area or not.
PRESENCE = schema("message string, client string, time_us bigint, inside boolean, standing boolean")
# Who should have received a message, and since when: null if that does not depend on reports.
EXPECTED = schema("message string, client string, inside_us bigint")
_TIMES = "tries int, addressed_us bigint, first_sent_us bigint, settled_us bigint"
# An adapter's receipt of one recipient, as `mercury.model.delivery.Delivery`.
RECEIPT = schema(f"message string, client string, state int, reason string, {_TIMES}")
# Both, one below the other: an expected recipient has no state, a receipt no time inside.
KNOWN = joined(RECEIPT, schema("inside_us bigint, expected boolean"))

# About the message, the same in every row of it.
_MESSAGE = schema(
    "source string, kind string, topic string, priority int, policy string, time_us bigint,"
    " sent_us bigint, ends_us bigint"
)
LEDGER_COLUMNS = joined(
    schema(f"message string, client string, state string, reason string, {_TIMES}"),
    schema("inside_us bigint, late_s double, expected boolean"),
    _MESSAGE,
)
STATES = ("acknowledged", "expired", "refused", "unreachable")
OUTCOME_COLUMNS = joined(
    schema("message string, destination string"),
    _MESSAGE,
    schema("recipients bigint, expected bigint"),
    schema(", ".join(f"{state} bigint" for state in STATES)),
    schema("tries bigint, late_p50_s double, late_p99_s double"),
)

# For the reference, where a name does not say enough.
NOTES = {
    "kind": "alert, content",
    "time_us": "when the message came to the bus",
    "inside_us": "first seen where the message was for, while it held",
    "late_s": "for who acknowledged: since it was sent, or since it came inside",
}
