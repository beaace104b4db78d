"""Counts rows, days, files and bytes of the stored tables from Parquet footers, without Spark."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.parquet as pq

from mercury.pipeline.history.files import HistoryFolder


class TableStatistics(NamedTuple):
    """The size of a table."""

    table: str
    rows: int
    days: int
    first_day: str | None
    last_day: str | None
    tiles: int
    files: int
    bytes: int


def table_statistics(folder: HistoryFolder, table: str) -> TableStatistics:
    """Count a table."""
    rows = files = size = 0
    days, tiles = set(), set()
    for partition in folder.partitions(table):
        for file in partition.files:
            try:
                rows += pq.read_metadata(file).num_rows
                size += file.stat().st_size
            except FileNotFoundError:
                continue  # compacted at this moment
            files += 1
            days.add(partition.day)
            tiles.add(partition.tile)
    first, last = (min(days), max(days)) if days else (None, None)
    return TableStatistics(table, rows, len(days), first, last, len(tiles), files, size)
