"""Reads the stored ledger with Arrow alone, without Spark.

An id contains the day when its message was made (UUIDv7), which is where to look first.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.model.errors import ConfigurationError
from mercury.pipeline.history.days import DAY_US, days_of
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.journal import with_retry
from mercury.pipeline.history.tables import LEDGER, OUTCOMES, TABLES

_EPOCH = date(1970, 1, 1).toordinal()
_FOREVER_US = 2**62

Row = dict[str, Any]  # by the columns of its table


def stored_ledger(folder: Path, message_id_hex: str) -> list[Row]:
    """The rows of a message by client; empty without recipients, or if not entered yet."""
    found = _find(folder, LEDGER, "message", message_id_hex)
    return sorted(found, key=lambda row: row["client"])


def stored_message(folder: Path, message_id_hex: str) -> Row | None:
    """A message as first stored; None if it is not stored."""
    found = _find(folder, "alerts", "id", message_id_hex)
    return min(found, key=lambda row: row["time_us"], default=None)


def stored_outcomes(
    folder: Path, from_us: int | None = None, to_us: int | None = None
) -> list[Row]:
    """The sums of all messages that came from one time until just before another."""
    time_us = ds.field("time_us")
    where = (time_us >= (from_us or 0)) & (time_us < (_FOREVER_US if to_us is None else to_us))
    found = _rows(folder, OUTCOMES, days_of(from_us, to_us), where)
    return sorted(found, key=lambda row: (row["time_us"], row["message"]))


def read_table(
    table: str,
    files: Sequence[Path],
    where: ds.Expression | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Rows of some of a table's files; footers tell which files can have matches."""
    schema = to_arrow_schema(TABLES[table].schema)
    # With a schema of ours: files of earlier days may lack a column.
    whole = ds.dataset([str(file) for file in files], schema=schema, format="parquet")
    return whole.to_table(columns=columns or TABLES[table].columns.names, filter=where)


def _find(folder: Path, table: str, column: str, id_hex: str) -> list[Row]:
    """The rows with an id, of the day that is nearest to the id's own and has any."""
    try:
        id = uuid.UUID(hex=id_hex)
    except ValueError:
        raise ConfigurationError(f"{id_hex!r} is no id of a message") from None
    made = _EPOCH + (id.int >> 80) * 1000 // DAY_US
    days = HistoryFolder(folder).days(table)
    for day in sorted(days, key=lambda day: abs(date.fromisoformat(day).toordinal() - made)):
        if found := _rows(folder, table, (day, day), ds.field(column) == str(id)):
            return found
    return []


def _rows(folder: Path, table: str, days: tuple[str, str], where: ds.Expression) -> list[Row]:
    def read() -> list[Row]:
        files = HistoryFolder(folder).files(table, *days)
        rows: list[Row] = read_table(table, files, where).to_pylist()
        return rows

    return with_retry(read)
