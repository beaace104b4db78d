"""The stored ledger of one message, read at once: Arrow is enough, Spark is not needed.

An id contains the day when its message was made (UUIDv7), which is where to look first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.dataset as ds

from mercury.model.errors import ConfigurationError
from mercury.pipeline.history.days import DAY_US
from mercury.pipeline.history.journal import with_retry

_EPOCH = date(1970, 1, 1).toordinal()
_FOREVER_US = 2**62

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMessage:
    """What every row says of its message."""

    message: str
    source: str | None
    kind: str | None
    topic: str | None
    priority: int | None
    policy: str | None
    time_us: int
    sent_us: int
    ends_us: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow(_OfMessage):
    """What became of a message for one of those who should have heard it, or were sent it."""

    client: str
    state: str
    reason: str | None
    addressed_us: int | None
    first_sent_us: int | None
    settled_us: int | None
    inside_us: int | None
    late_s: float | None
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(_OfMessage):
    """The same added up."""

    destination: str | None
    recipients: int
    expected: int
    acknowledged: int
    expired: int
    refused: int
    unreachable: int
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
    begin_us, end_us = from_us or 0, _FOREVER_US if to_us is None else to_us
    where = (ds.field("time_us") >= begin_us) & (ds.field("time_us") < end_us)
    found: list[Outcome] = []
    for day, path in _days(folder / "outcomes").items():
        if begin_us // DAY_US <= day <= end_us // DAY_US:
            found += _read(path, where, Outcome)
    return sorted(found, key=lambda row: (row.time_us, row.message))


def _find(folder: Path, table: str, column: str, id_hex: str, row: type[Row]) -> list[Row]:
    """The rows with an id, of the day that is nearest to the id's own and has any."""
    try:
        id = uuid.UUID(hex=id_hex)
    except ValueError:
        raise ConfigurationError(f"{id_hex!r} is no id of a message") from None
    made = (id.int >> 80) * 1000 // DAY_US
    days = _days(folder / table)
    for day in sorted(days, key=lambda day: abs(day - made)):
        if found := _read(days[day], ds.field(column) == str(id), row):
            return found
    return []


def _read(day: Path, where: ds.Expression, row: type[Row]) -> list[Row]:
    names = [field.name for field in fields(row)]  # type: ignore[arg-type]
    found = with_retry(lambda: list(_rows(day, where, names)))
    return [row(**{name: one.get(name) for name in names}) for one in found]


def _rows(day: Path, where: ds.Expression, names: list[str]) -> Iterator[dict[str, Any]]:
    for file in sorted(day.glob("tile=*/[!_.]*.parquet")):
        # Footers say which ids a file may hold; most are not read any further.
        part = ds.dataset(str(file), format="parquet")
        known = [name for name in names if name in part.schema.names]
        yield from part.to_table(columns=known, filter=where).to_pylist()


def _days(table: Path) -> dict[int, Path]:
    """The folders of a table by day since 1970."""
    found = {}
    for path in sorted(table.glob("day=*")):
        with suppress(ValueError):
            day = date.fromisoformat(path.name.removeprefix("day="))
            found[day.toordinal() - _EPOCH] = path
    return found
