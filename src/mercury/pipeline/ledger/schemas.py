"""The columns of the ledger: what the job passes between its steps, and what is stored."""

from __future__ import annotations

from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from mercury.pipeline.history.schemas import columns, joined

_TEXT, _WHOLE, _REAL, _COUNT = StringType(), LongType(), DoubleType(), IntegerType()

# A report that speaks for a client having been where a message was for.
SIGHTING = columns(
    message=_TEXT, client=_TEXT, time_us=_WHOLE, inside=BooleanType(), standing=BooleanType()
)
# Who should have heard a message, and since when: null where that does not depend on reports.
EXPECTED = columns(message=_TEXT, client=_TEXT, inside_us=_WHOLE)
# What an adapter says of one recipient, as `mercury.model.delivery.Delivery`.
RECEIPT = columns(
    message=_TEXT,
    client=_TEXT,
    state=_COUNT,
    reason=_TEXT,
    tries=_COUNT,
    addressed_us=_WHOLE,
    first_sent_us=_WHOLE,
    settled_us=_WHOLE,
)
# Both, one below the other: an expected recipient has no state, a receipt no time inside.
KNOWN = joined(
    RECEIPT, StructType([StructField("inside_us", _WHOLE), StructField("expected", BooleanType())])
)

# About the message, the same in every row of it.
_MESSAGE = columns(
    source=_TEXT,
    kind=_TEXT,  # alert, content
    topic=_TEXT,
    priority=_COUNT,
    policy=_TEXT,
    time_us=_WHOLE,  # when it came to the bus
    sent_us=_WHOLE,
    ends_us=_WHOLE,
)
LEDGER_COLUMNS = joined(
    columns(
        message=_TEXT,
        client=_TEXT,
        state=_TEXT,
        reason=_TEXT,
        tries=_COUNT,
        addressed_us=_WHOLE,
        first_sent_us=_WHOLE,
        settled_us=_WHOLE,
        inside_us=_WHOLE,  # first seen where the message was for, while it held
        late_s=_REAL,  # for who acknowledged: since it was sent, or since it came inside
        expected=BooleanType(),
    ),
    _MESSAGE,
)
STATES = ("acknowledged", "expired", "refused", "unreachable")
OUTCOME_COLUMNS = joined(
    columns(message=_TEXT, destination=_TEXT),
    _MESSAGE,
    columns(
        recipients=_WHOLE,
        expected=_WHOLE,
        **dict.fromkeys(STATES, _WHOLE),
        tries=_WHOLE,
        late_p50_s=_REAL,
        late_p99_s=_REAL,
    ),
)
