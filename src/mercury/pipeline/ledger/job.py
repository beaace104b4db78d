"""The ledger job: aggregates the receipts of each finished message, once, by recipient.

The history folder itself records what has been entered: rows, sums and progress change in one step
of its journal, so nothing is counted twice after a crash or a repetition.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.geo.outline import bounds
from mercury.mediator.ledger import merged
from mercury.model.delivery import Delivery
from mercury.model.errors import JobFailedError
from mercury.pipeline.history.days import DAY_US, day_of
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.journal import locked, with_retry
from mercury.pipeline.history.tables import LEDGER, OUTCOMES, TABLES
from mercury.pipeline.history.tiles import NOWHERE, tiles_over
from mercury.pipeline.ledger import transforms
from mercury.pipeline.ledger.messages import (
    GRACE_US,
    PARTICULARS,
    TIMES,
    Addressed,
    addressed,
    first_of_each,
    in_full,
    is_answered,
    is_over,
)
from mercury.pipeline.ledger.reading import read_table
from mercury.pipeline.ledger.schemas import OUTCOME_COLUMNS, STATES

NAME = "ledger"
# Messages that enter in one step: few enough to go to every worker.
MESSAGES_AT_ONCE = 200
# Unfinished messages whose receipts are read in one run.
_ASKED_AT_ONCE = 1000
# All messages that came before are in the ledger.
_WATERMARK = f"{NAME}/0"
# How long a message that was put on the bus again is recognised after it was entered.
_REPEATED_US = 2 * DAY_US
_TO_CLIENTS = ("area", "client", "group", "everyone")

Sums = dict[str, dict[str, Any]]


class DueMessages(NamedTuple):
    """The messages to enter now."""

    messages: list[Addressed]
    waiting: int  # messages that are not finished, or come next
    watermark_us: int  # all before that have entered, once these have


class Entered(NamedTuple):
    """The messages that were entered."""

    messages: int
    rows: int
    waiting: int


class LedgerJob:
    """Reads stored tables, writes the ledger."""

    def __init__(
        self,
        folder: Path,
        *,
        messages_at_once: int = MESSAGES_AT_ONCE,
        tasks: int | None = None,
    ) -> None:
        self.folder = HistoryFolder(folder)
        self.counters: Counter[str] = Counter()
        self.waiting = 0
        self._at_once = messages_at_once
        self._tasks = tasks  # files it reads at a time, to leave room for other jobs
        self._asked = 0  # where to go on asking
        self._held = ExitStack()

    def start(self) -> None:
        """Lock the ledger of the folder."""
        refusal = f"another job keeps the ledger in {self.folder.path}"
        self._held.enter_context(locked(self.folder.path, NAME, refusal=refusal))
        self.folder.drop_staging(NAME)

    def stop(self) -> None:
        """Release it for another job."""
        self._held.close()

    def run(self, spark: SparkSession, stored_until_us: int, *, final: bool = True) -> Entered:
        """Enter some of the finished messages, with all records until then stored.

        Arguments:
            final: whether that is certain, so that earlier records need not be read again.
        """

        def once() -> tuple[DueMessages, int]:
            due = self.due(stored_until_us)
            return due, self.enter(spark, due, final=final)

        due, rows = with_retry(once)
        self.waiting = due.waiting
        self.counters["ledger_messages"] += len(due.messages)
        self.counters["ledger_rows"] += rows
        return Entered(len(due.messages), rows, due.waiting)

    # Selecting messages

    def due(self, stored_until_us: int) -> DueMessages:
        """The messages that enter next, the oldest first; Spark is not needed to find them."""
        watermark_us = self.folder.offsets().get(_WATERMARK, (0, 0))[1]
        first_day = day_of(watermark_us)
        with self.folder.at_rest():
            alerts = self.folder.files("alerts", first_day)
            outcomes = self.folder.files(OUTCOMES, day_of(max(watermark_us - _REPEATED_US, 0)))
            deliveries = self.folder.files("deliveries", first_day)
        entered = set(read_table(OUTCOMES, outcomes, columns=["message"]).column(0).to_pylist())
        since = ds.field("time_us") >= watermark_us
        rows = read_table("alerts", alerts, since, [*TIMES, *PARTICULARS])
        found = {
            id: row
            for id, row in first_of_each(rows.to_pylist()).items()
            if id not in entered and (row["destination"] or "").partition(":")[0] in _TO_CLIENTS
        }
        pending = sorted(map(addressed, found.values()), key=lambda one: (one.time_us, one.id))
        over = [one for one in pending if is_over(one, stored_until_us)]
        not_over = [one for one in pending if not is_over(one, stored_until_us)]
        over = over[: self._at_once]
        asked = self._some([one for one in not_over if one.may_be_early])
        # A client that no receipt names may have been away: reports show it.
        named = [one for one in over if one.to == "client"]
        written = _answers(deliveries, [*asked, *named])
        early = [one for one in asked if is_answered(one, written.get(one.id, {}), stored_until_us)]
        chosen = [
            in_full(one, found[one.id])._replace(
                sought=one.to != "client" or one.name not in written.get(one.id, {})
            )
            for one in (over + early)[: self._at_once]
        ]
        ids = {one.id for one in chosen}
        left = [one for one in pending if one.id not in ids]
        safe_us = max(stored_until_us - GRACE_US, 0)
        return DueMessages(
            chosen, len(left), max(min([safe_us, *(one.time_us for one in left)]), watermark_us)
        )

    def _some(self, messages: list[Addressed]) -> list[Addressed]:
        """A limited number per call, all of them in turn."""
        if len(messages) <= _ASKED_AT_ONCE:
            return messages
        begin = self._asked % len(messages)
        self._asked = begin + _ASKED_AT_ONCE
        return (messages + messages)[begin : begin + _ASKED_AT_ONCE]

    # Entering them

    def enter(self, spark: SparkSession, due: DueMessages, *, final: bool = True) -> int:
        """Add messages to the ledger, atomically; returns the number of rows."""
        messages = due.messages
        if not messages:
            return 0
        staging = self.folder.new_staging(NAME)
        reports, deliveries = self._input(spark, messages)
        said = transforms.receipts(deliveries, messages).persist()
        should = transforms.expected(reports, messages).persist()
        try:
            self.folder.stage(transforms.ledger(said, should, messages), staging, LEDGER)
            # Compare what was written with the recipients, which are counted separately.
            counted = _by_message(transforms.recipients(said, should))
        finally:
            said.unpersist()
            should.unpersist()
        files = sorted((staging / LEDGER).glob("day=*/tile=*/*.parquet"))
        reader = spark.read.schema(TABLES[LEDGER].columns)
        paths = [f"file://{file}" for file in files]
        found = _by_message(transforms.sums(reader.parquet(*paths))) if files else {}
        held_against(messages, found, counted)
        for number, rows in _outcomes(messages, found):
            place = staging / OUTCOMES / f"day={number}" / f"tile={NOWHERE}"
            place.mkdir(parents=True)
            pq.write_table(rows, place / "part.parquet", compression="zstd")
        names = [
            str(file.relative_to(staging)) for file in staging.glob("*/day=*/tile=*/*.parquet")
        ]
        label = f"{messages[0].id}-{uuid.uuid4().hex[:8]}"
        offsets = {_WATERMARK: (0, due.watermark_us)} if final else {}
        self.folder.add(staging, names, label, offsets)
        return sum(one["recipients"] for one in counted.values())

    def _input(
        self, spark: SparkSession, messages: Sequence[Addressed]
    ) -> tuple[DataFrame, DataFrame]:
        """The needed reports, by day and tile, and the receipts."""
        places = _places(messages)
        first = day_of(min(one.time_us for one in messages))
        last = day_of(max(one.end_us for one in messages) + GRACE_US)
        with self.folder.at_rest():
            files = {
                "reports": [
                    file
                    for day, tiles in places.items()
                    for file in self.folder.files("reports", day, day, tiles)
                ],
                "deliveries": self.folder.files("deliveries", first, last),
            }
        frames = [self.folder.read_files(spark, table, some) for table, some in files.items()]
        if self._tasks is not None:
            frames = [frame.coalesce(self._tasks) for frame in frames]
        return frames[0], frames[1]


def held_against(
    messages: Sequence[Addressed], found: Sums, counted: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that the ledger's sums are consistent, before it is stored."""
    wrong = []
    for one in messages:
        states = found.get(one.id, {})
        total = sum(states.get(state) or 0 for state in STATES)
        should = counted.get(one.id, {}).get("recipients", 0)
        if total != should:
            wrong.append(f"{one.id} ({total} of {should})")
    strange = (found.keys() | counted.keys()) - {one.id for one in messages}
    wrong += [f"{id} (nobody asked)" for id in sorted(strange)]
    if wrong:
        raise JobFailedError(
            "the ledger does not add up, so nothing of it was stored: recipients in a state,"
            f" of all, are {', '.join(wrong)}"
        )


def newest_stored_us(folder: HistoryFolder) -> int:
    """When the newest stored record came."""
    offsets = folder.offsets()
    return max((time_us for name, (_, time_us) in offsets.items() if name != _WATERMARK), default=0)


def _places(messages: Sequence[Addressed]) -> dict[str, list[str] | None]:
    """By day the tiles whose reports are needed; None means all."""
    found: dict[str, set[str] | None] = {}
    for one in messages:
        if not one.sought or one.to == "group" or one.look_from_us >= one.look_until_us:
            continue
        tiles = tiles_over(*bounds(one.area.shape)) if one.area is not None else None
        for number in range(one.look_from_us // DAY_US, (one.look_until_us - 1) // DAY_US + 1):
            day = day_of(number * DAY_US)
            known = found.setdefault(day, set())
            found[day] = None if tiles is None or known is None else known.union(tiles)
    return {day: None if tiles is None else sorted(tiles) for day, tiles in found.items()}


def _answers(files: list[Path], messages: Sequence[Addressed]) -> dict[str, dict[str, Delivery]]:
    """The receipts so far, by message and client."""
    if not messages:
        return {}
    wanted = ds.field("message").isin([one.id for one in messages])
    found: dict[str, dict[str, Delivery]] = {}
    for value in read_table("deliveries", files, wanted, ["value"]).column("value").to_pylist():
        for message, new in transforms.read(value):
            known = found.setdefault(message, {})
            old = known.get(new.client)
            known[new.client] = new if old is None else merged(old, new)
    return found


def _by_message(rows: DataFrame) -> Sums:
    return {row["message"]: row for row in rows.toArrow().to_pylist()}


def _outcomes(messages: Sequence[Addressed], found: Sums) -> list[tuple[str, pa.Table]]:
    """The sums by day, including messages without recipients."""
    by_day: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(messages, key=lambda one: one.id):
        counts = found.get(one.id, {})
        row = {name: counts.get(name) or 0 for name in (*STATES, "expected", "tries")}
        row |= {name: counts.get(name) for name in ("late_p50_s", "late_p99_s")}
        row |= {"message": one.id, "destination": one.destination, **one.about}
        row["recipients"] = sum(row[state] for state in STATES)
        by_day.setdefault(day_of(one.time_us), []).append(row)
    schema = to_arrow_schema(OUTCOME_COLUMNS)
    return [(day, pa.Table.from_pylist(rows, schema=schema)) for day, rows in by_day.items()]
