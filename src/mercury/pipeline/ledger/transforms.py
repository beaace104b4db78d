"""Who should have received which message, and what became of it: each function returns rows.

Messages are few and go with the functions to the workers; reports are scanned once for all of
them. The state of each recipient is decided by the ledger core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.geo.box import Box
from mercury.geo.containment import contains
from mercury.geo.outline import bounds
from mercury.mediator.ledger import final, merged, never_addressed
from mercury.model.delivery import Delivery, DeliveryState, Reason
from mercury.model.errors import PacketError
from mercury.pipeline.history.days import day_of
from mercury.pipeline.history.schemas import PLACES
from mercury.pipeline.history.tiles import NOWHERE
from mercury.pipeline.ledger.messages import SECOND_US, Addressed
from mercury.pipeline.ledger.schemas import (
    EXPECTED,
    KNOWN,
    LEDGER_COLUMNS,
    PRESENCE,
    RECEIPT,
    STATES,
)
from mercury.pipeline.schemas import joined
from mercury.wire import parse
from mercury.wire.codec import deliveries_from_pb

_REPORT = ("client", "time_us", "lat", "lon", "heading_deg")
_STORED = joined(LEDGER_COLUMNS, PLACES)
_STORED_ARROW = to_arrow_schema(_STORED)
_RECEIPT_ARROW = to_arrow_schema(RECEIPT)
_PRESENCE_ARROW = to_arrow_schema(PRESENCE)
_SAID = RECEIPT.names[1:]  # the fields of a `Delivery` that are kept

Ints = NDArray[np.int64]


def expected(reports: DataFrame, messages: Sequence[Addressed]) -> DataFrame:
    """Who should have received each message, and since when (`EXPECTED`)."""
    sought = [one for one in messages if one.sought and one.to != "group"]
    time_us = F.col("time_us")
    if sought:
        reports = reports.where(
            (time_us >= min(one.look_from_us for one in sought))
            & (time_us < max(one.look_until_us for one in sought))
        )
    else:
        reports = reports.where(F.lit(False))
    seen = reports.select(*_REPORT).mapInArrow(partial(_presences, sought), PRESENCE)
    # A client addressed by name is expected wherever it is.
    named = [
        (one.id, one.name, None, True, True)
        for one in messages
        if one.to == "client" and one.name != one.sender
    ]
    if named:
        seen = seen.unionByName(reports.sparkSession.createDataFrame(named, PRESENCE))
    grouped = seen.groupBy("message", "client").agg(
        F.min(F.when(F.col("inside"), time_us)).alias("inside_us"),
        F.max_by("inside", F.struct("time_us", "inside")).alias("still_inside"),
        F.max(time_us).alias("last_us"),
        F.bool_or("standing").alias("standing"),
    )
    # A message for clients inside when it came is judged by the last report before it.
    found = grouped.where("standing OR still_inside")
    since_us = F.when(F.col("standing"), F.col("inside_us")).otherwise(F.col("last_us"))
    return found.select("message", "client", since_us.alias("inside_us")).to(EXPECTED)


def receipts(deliveries: DataFrame, messages: Sequence[Addressed]) -> DataFrame:
    """All receipts of adapters for each recipient of these messages (`RECEIPT`)."""
    ids = [one.id for one in messages]
    some = deliveries.where(F.col("message").isin(ids)).select("value")
    return some.mapInArrow(_read_receipts, RECEIPT)


def ledger(receipts: DataFrame, expected: DataFrame, messages: Sequence[Addressed]) -> DataFrame:
    """One row for each message and recipient: expected, addressed or both."""
    said = receipts.withColumn("expected", F.lit(False))
    should = expected.withColumn("expected", F.lit(True))
    # Union and group: a full outer join that a message to everyone does not skew.
    both = said.unionByName(should, allowMissingColumns=True).select(*KNOWN.names)
    both = both.repartition("message", "client")
    about = {one.id: one for one in messages}
    return both.mapInArrow(partial(_fold, about), _STORED)


def recipients(receipts: DataFrame, expected: DataFrame) -> DataFrame:
    """The number of recipients of each message: counted separately, to check the ledger."""
    pair = ("message", "client")
    both = receipts.select(*pair).union(expected.select(*pair)).distinct()
    return both.groupBy("message").agg(F.count("*").alias("recipients"))


def sums(rows: DataFrame) -> DataFrame:
    """The ledger aggregated by message."""
    counts = [F.count_if(F.col("state") == state).alias(state) for state in STATES]
    late_s = F.percentile("late_s", F.array(F.lit(0.5), F.lit(0.99)))
    grouped = rows.groupBy("message").agg(
        *counts,
        F.count_if("expected").alias("expected"),
        F.sum("tries").alias("tries"),
        late_s.alias("late_s"),
    )
    return grouped.select(
        "message", *STATES, "expected", "tries",
        F.col("late_s")[0].alias("late_p50_s"), F.col("late_s")[1].alias("late_p99_s"),
    )  # fmt: skip


# In the workers: reports


def _presences(
    messages: Sequence[Addressed], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    # Reports just outside matter where the last report counts.
    boxes = {
        one.id: Box(*bounds(one.area.shape))
        for one in messages
        if one.area is not None and one.standing
    }
    for batch in batches:
        if not batch.num_rows:
            continue
        times = np.asarray(batch.column("time_us"))
        lats, lons, headings = (
            np.asarray(batch.column(name), dtype=np.float64) for name in _REPORT[2:]
        )
        clients = batch.column("client").dictionary_encode()
        names, codes = clients.dictionary, np.asarray(clients.indices)
        first_us, last_us = times.min(), times.max()
        corners = (np.fmin.reduce(lats), np.fmin.reduce(lons))  # where one is not NaN
        extent = Box(*corners, np.fmax.reduce(lats), np.fmax.reduce(lons))
        for message in messages:
            if message.look_from_us > last_us or message.look_until_us <= first_us:
                continue
            box = boxes.get(message.id)
            # A batch is of a tile or two, and most messages are for elsewhere.
            if box is not None and not box.overlaps(extent):
                continue
            look = (times >= message.look_from_us) & (times < message.look_until_us)
            if message.to == "client":
                look &= codes == _code(names, message.name)
            if message.sender is not None:
                look &= codes != _code(names, message.sender)
            if box is not None:
                look &= box.contains(lats, lons)
            at = np.flatnonzero(look)
            if not len(at):
                continue
            inside = np.ones(len(at), np.bool_)
            if message.area is not None:
                inside = contains(message.area, lats[at], lons[at], headings[at])
            if message.standing:
                at = at[inside]
                chosen = _first_of_each(codes[at], times[at])
                inside = np.ones(len(chosen), np.bool_)
            else:
                chosen = _first_of_each(codes[at], -times[at], ~inside)
                inside = inside[chosen]
            at = at[chosen]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([message.id] * len(at), pa.string()),
                    names.take(pa.array(codes[at])),
                    pa.array(times[at]),
                    pa.array(inside),
                    pa.array(np.full(len(at), message.standing)),
                ],
                schema=_PRESENCE_ARROW,
            )


def _code(names: pa.Array, name: str) -> int:
    found: int = pc.index(names, name).as_py()
    return found if found >= 0 else -2  # -1 means unknown


def _first_of_each(codes: Ints, *ranks: NDArray[Any]) -> Ints:
    """The row of each code that comes first by these."""
    order = np.lexsort((*reversed(ranks), codes))
    _, first = np.unique(codes[order], return_index=True)
    return order[first]


# In the workers: receipts


def _read_receipts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {"message": message, **{name: getattr(row, name) for name in _SAID}}
            for value in batch.column("value").to_pylist()
            for message, row in read(value)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_RECEIPT_ARROW)


def read(value: bytes) -> Iterator[tuple[str, Delivery]]:
    """The rows of a stored receipt and their message; empty if it cannot be read."""
    try:
        found = deliveries_from_pb(parse(value).deliveries)
    except PacketError:
        return
    message = str(found.message)
    for row in found.rows:
        yield message, row


# In the workers: both


def _fold(
    about: Mapping[str, Addressed], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    said: dict[tuple[str, str], Delivery] = {}
    should: dict[tuple[str, str], int | None] = {}
    for batch in batches:
        for row in batch.to_pylist():
            pair = row["message"], row["client"]
            if row["expected"]:
                should[pair] = row["inside_us"]
                continue
            fields = {name: row[name] for name in _SAID} | {"state": DeliveryState(row["state"])}
            new, known = Delivery(**fields), said.get(pair)
            said[pair] = new if known is None else merged(known, new)
    rows = [
        entry(about[message], client, said.get((message, client)), (message, client) in should,
              should.get((message, client)))
        for message, client in {**said, **should}
    ]  # fmt: skip
    yield from pa.Table.from_pylist(rows, schema=_STORED_ARROW).to_batches()


def entry(
    message: Addressed,
    client: str,
    said: Delivery | None,
    expected: bool,
    inside_us: int | None,
) -> dict[str, Any]:
    """The row of one recipient: the outcome of the message, and its delay."""
    row = final(said, message.end_us) if said is not None else _unsaid(message, client, inside_us)
    late_s = None
    if row.state is DeliveryState.ACKNOWLEDGED:
        # Adapters may know of a client inside before its first report since the message.
        since_us = [time_us for time_us in (inside_us, row.addressed_us) if time_us]
        could_us = max(message.begin_us, min(since_us) if inside_us else 0)
        late_s = max(row.settled_us - could_us, 0) / SECOND_US
    return {
        "message": message.id,
        "client": client,
        "state": row.state.label,
        "reason": str(row.reason) or None,
        "tries": row.tries,
        "addressed_us": row.addressed_us or None,
        "first_sent_us": row.first_sent_us or None,
        "settled_us": row.settled_us or None,
        "inside_us": inside_us,
        "late_s": late_s,
        # Only adapters know the members of a group.
        "expected": expected or message.to == "group",
        **message.about,
        "day": _day_of(message.time_us),
        "tile": NOWHERE,
    }


_day_of = lru_cache(1024)(day_of)  # a message's rows share it


def _unsaid(message: Addressed, client: str, inside_us: int | None) -> Delivery:
    """The outcome for a recipient without a receipt."""
    if message.end_us <= message.time_us:
        return Delivery(client, DeliveryState.EXPIRED, Reason.NOT_SENT, settled_us=message.end_us)
    if inside_us is None:  # addressed by name, and not connected
        return final(Delivery(client, DeliveryState.WAITING), message.end_us)
    end_us = message.end_us if message.standing else message.begin_us
    return never_addressed(client, inside_us, end_us)
