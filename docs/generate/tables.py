"""The stored tables, from the schemas that Spark writes them with."""

from __future__ import annotations

from pyspark.sql.types import StructType

from mercury.pipeline.encounters import schemas as encounters
from mercury.pipeline.history import schemas as history
from mercury.pipeline.history.tables import TABLES
from mercury.pipeline.ledger import schemas as ledger
from mercury.pipeline.traces import tables as traces
from mercury.pipeline.traces.schemas import FIX

from .md import code, table

HEAD = """# Stored tables

Tables are folders of Parquet files. Times are microseconds since 1970, UTC; a missing value is null. Folders that
begin with `_` are not tables.

The pipeline keeps its history in `FOLDER/TABLE/day=2026-03-01/tile=12-774-1538/*.parquet`. The day is that of the
record's arrival at the bus, the tile a Web Mercator tile of zoom 12 (about 7 km wide at 45°), `none` without a place.
"""
ABOUT = {
    "reports": "Where each client was.",
    "events": "What clients sensed.",
    "alerts": "Messages to clients, groups and areas.",
    "deliveries": "A row for each record of receipts, which names up to 300 recipients.",
    "rejects": "Records that are no message of their topic, with the reason.",
    "ledger": "A row for each message and each client that heard it or should have: how it ended.",
    "outcomes": "The same added up: a row for each message, also for one that was for nobody.",
}


def tables() -> str:
    """The page; fails where a table is not explained, or no longer there."""
    if set(TABLES) != set(ABOUT):
        raise ValueError(f"tables not explained, or gone: {set(TABLES) ^ set(ABOUT)}")
    by_table = {"ledger": ledger.NOTES, "outcomes": ledger.NOTES}
    parts = [HEAD, "\n## History\n"]
    for name, about in ABOUT.items():
        parts.append(
            f"\n### {name}\n\n{about}\n\n{_columns(TABLES[name].columns, by_table.get(name, history.NOTES))}"
        )
    parts.append(
        "\n### Columns of the record\n\n`reports`, `events`, `alerts`, `deliveries` and `rejects` also "
        f"hold the record as it was, so that a replay is exact.\n\n{_columns(history.ORIGIN, {})}"
    )
    parts.append(
        "\n## Imported positions\n\n`mercury import --to parquet FOLDER` writes these, by `day`; and "
        "those that are rejected to a folder beside it.\n\n"
        + _columns(StructType([FIX[name] for name in traces.POSITION_COLUMNS]), {})
        + f"\nColumns of rejects: {', '.join(code(name) for name in traces.REJECT_COLUMNS)}.\n"
    )
    parts.append(
        "\n## Encounters\n\n`mercury history encounters --out FOLDER` writes these, by `day`.\n\n"
        + _columns(encounters.ENCOUNTER, encounters.NOTES)
    )
    return "".join(parts)


def _columns(schema: StructType, notes: dict[str, str]) -> str:
    return table(
        ("column", "type", ""),
        (
            (code(field.name), field.dataType.simpleString(), notes.get(field.name, ""))
            for field in schema.fields
        ),
    )
