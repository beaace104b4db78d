"""Compaction: the many small files of a day and tile become few large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from mercury.model.errors import PipelineError
from mercury.pipeline.history.files import HistoryFolder, Partition
from mercury.pipeline.history.journal import locked
from mercury.pipeline.history.tables import TABLES

SMALL_BYTES = 32 * 1024**2
# Partitions that one Spark job rewrites, and that change in one step.
_AT_ONCE = 200
_PURPOSE = "compacted"


class Compacted(NamedTuple):
    """What a compaction did."""

    partitions: int
    files_before: int
    files_after: int


def plan(
    partitions: Iterable[Partition], *, least_files: int = 2, small_bytes: int = SMALL_BYTES
) -> list[Partition]:
    """The partitions to compact, with the files to merge; large files are left."""
    found = []
    for one in partitions:
        small = tuple(file for file in one.files if file.stat().st_size < small_bytes)
        if len(small) >= max(least_files, 2):
            found.append(one._replace(files=small))
    return found


def compact(
    spark: SparkSession,
    folder: HistoryFolder,
    *,
    least_files: int = 2,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compacted:
    """Merge small files; meanwhile others may read, and the job may add."""
    with locked(folder.path, "compact", refusal=f"{folder.path} is being compacted already"):
        folder.drop_staging(_PURPOSE)
        chosen = {
            table: plan(folder.partitions(table), least_files=least_files) for table in TABLES
        }
        total = sum(map(len, chosen.values()))
        done = before = after = 0
        progress(done, total)
        for table, partitions in chosen.items():
            for at in range(0, len(partitions), _AT_ONCE):
                some = partitions[at : at + _AT_ONCE]
                before += sum(len(one.files) for one in some)
                after += _merge(spark, folder, table, some)
                done += len(some)
                progress(done, total)
        return Compacted(done, before, after)


def _merge(
    spark: SparkSession, folder: HistoryFolder, table: str, partitions: list[Partition]
) -> int:
    """Merge each partition's files; returns the number of new files."""
    files = [file for one in partitions for file in one.files]
    staging = folder.new_staging(_PURPOSE)
    folder.stage(folder.read_files(spark, table, files), staging, table)
    merged = sorted(staging.glob("*/day=*/tile=*/*.parquet"))
    if _rows(merged) != _rows(files):
        raise PipelineError(f"merging files of {table} would change how many rows there are")
    folder.replace(staging, partitions)
    return len(merged)


def _rows(files: Iterable[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)
