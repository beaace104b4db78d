"""The stored ledger of one message, read at once: Arrow is enough, Spark is not needed.

An id tells the day when its message was made (UUIDv7), which is where to look first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mercury.model.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRIES = 3

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What became of a message for one of those who should have heard it, or were sent it."""

    message: str
    client: str
    state: str
    reason: str | None
    tries: int
    addressed_us: int | None
    first_sent_us: int | None
    settled_us: int | None
    inside_us: int | None
    late_s: float | None
    expected: bool
    source: str | None
    kind: str | None
    topic: str | None
    priority: int | None
    policy: str | None
    time_us: int
    sent_us: int
    ends_us: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The same added up."""

    message: str
    destination: str | None
    source: str | None
    kind: str | None
    topic: str | None
    priority: int | None
    policy: str | None
    time_us: int
    sent_us: int
    ends_us: int
    recipients: int
    expected: int
    acknowledged: int
    expired: int
    refused: int
    unreachable: int
    tries: int
    late_p50_s: float | None
    late_p99_s: float | None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message to clients as it stands in the table of alerts."""

    id: str
    kind: str | None
    message_kind: str | None
    subject: str | None
    priority: int | None
    policy: str | None
    source: str | None
    destination: str | None
    time_us: int
    sent_us: int | None
    expires_us: int | None
    ends_us: int | None  # None: it says no end
    correlation: str | None
    area: str | None  # GeoJSON
    text: str | None
    values: str | None  # JSON


def stored_ledger(folder: Path, message_id_hex: str) -> list[LedgerRow]:
    """The rows of a message by client; none, if it was for nobody or has not entered yet."""
    found = _find(folder, "ledger", "message", message_id_hex, LedgerRow)
    return sorted(found, key=lambda row: row.client)


def stored_outcome(folder: Path, message_id_hex: str) -> Outcome | None:
    """The sums of a message; None, if it has not entered the ledger yet."""
    return next(iter(_find(folder, "outcomes", "message", message_id_hex, Outcome)), None)


def stored_message(folder: Path, message_id_hex: str) -> StoredMessage | None:
    """A message as it was, the first time it came; None, if it is not stored."""
    found = _find(folder, "alerts", "id", message_id_hex, StoredMessage)
    return min(found, key=lambda row: row.time_us, default=None)


def stored_outcomes(
    folder: Path, from_us: int | None = None, to_us: int | None = None
) -> list[Outcome]:
    """The sums of all messages that came from one time until just before another."""
    first = "" if from_us is None else _day(from_us)
    last = "~" if to_us is None else _day(to_us)
    where = ds.scalar(True)
    if from_us is not None:
        where &= ds.field("time_us") >= from_us
    if to_us is not None:
        where &= ds.field("time_us") < to_us
    found: list[Outcome] = []
    for day in _days(folder / "outcomes"):
        if first <= day <= last:
            found += _read(folder / "outcomes" / f"day={day}", where, Outcome)
    return sorted(found, key=lambda row: (row.time_us, row.message))


def _find(folder: Path, table: str, column: str, id_hex: str, row: type[Row]) -> list[Row]:
    """The rows with an id, of the day that is nearest to the id's own and has any."""
    try:
        id = uuid.UUID(hex=id_hex)
    except ValueError:
        raise ConfigurationError(f"{id_hex!r} is no id of a message") from None
    days = _days(folder / table)
    made_ms = id.int >> 80
    made = made_ms // 86_400_000
    for day in sorted(days, key=lambda day: abs(_number(day) - made)):
        found = _read(folder / table / f"day={day}", ds.field(column) == str(id), row)
        if found:
            return found
    return []


def _read(day: Path, where: ds.Expression, row: type[Row]) -> list[Row]:
    names = [field.name for field in fields(row)]  # type: ignore[arg-type]
    for left in range(_TRIES - 1, -1, -1):
        try:
            tables = list(_tables(day, where, names))
            break
        except FileNotFoundError:  # compacted at this moment: its rows are in another file by now
            if not left:
                raise
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return [row(**{name: one.get(name) for name in names}) for one in found]


def _tables(day: Path, where: ds.Expression, names: list[str]) -> Iterator[pa.Table]:
    for file in sorted(day.glob("tile=*/[!_.]*.parquet")):
        # Footers say which ids a file may hold; most are not read any further.
        schema = pq.read_schema(file)
        known = [name for name in names if name in schema.names]
        part = ds.dataset(str(file), format="parquet").to_table(columns=known, filter=where)
        if part.num_rows:
            yield part


def _days(table: Path) -> list[str]:
    found = [path.name.removeprefix("day=") for path in table.glob("day=*")]
    return sorted(day for day in found if _number(day) >= 0)


def _number(day: str) -> int:
    try:
        return (date.fromisoformat(day) - _EPOCH.date()).days
    except ValueError:
        return -1


def _day(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).date().isoformat()
