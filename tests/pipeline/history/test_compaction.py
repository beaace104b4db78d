"""Compaction: fewer files, the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline.history import recording
from pipeline.whole_bus import store_batch
from pyspark.sql import SparkSession

from mercury.model.errors import PipelineError
from mercury.pipeline.history.compaction import compact, plan
from mercury.pipeline.history.files import HistoryFolder, Partition
from mercury.pipeline.history.journal import locked
from mercury.pipeline.history.statistics import table_statistics

ALL = ["topic", "partition", "offset", "time_us", "key", "value", "day", "tile"]


def sized(path: Path, size: int) -> Path:
    path.write_bytes(b"x" * size)
    return path


def test_small_files_are_merged_where_they_are_many(tmp_path: Path) -> None:
    small = tuple(sized(tmp_path / f"s{n}.parquet", 10) for n in range(3))
    large = sized(tmp_path / "large.parquet", 1000)
    partitions = [
        Partition("reports", "2026-03-01", "none", (*small, large)),
        Partition("reports", "2026-03-01", "12-1-1", (small[0], large)),
    ]
    [found] = plan(partitions, small_bytes=100)
    assert (found.tile, found.files) == ("none", small)
    assert plan(partitions, small_bytes=100, least_files=4) == []


def test_rows_stay_and_files_go(spark: SparkSession, tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path / "h")
    with recording.opened(tmp_path / "bus.db") as bus:
        for seed in range(2):
            recording.fill(bus, steps=4, vehicles=20, seed=seed)
            store_batch(spark, f"embedded:{tmp_path / 'bus.db'}", folder.path)
    before = table_statistics(folder, "reports")
    rows = sorted(folder.read(spark, "reports").select(ALL).collect())
    seen: list[tuple[int, int]] = []
    done = compact(spark, folder, progress=lambda count, total: seen.append((count, total)))
    after = table_statistics(folder, "reports")
    assert sorted(folder.read(spark, "reports").select(ALL).collect()) == rows
    assert after.files == len(list(folder.partitions("reports"))) < before.files
    assert after[:6] == before[:6]  # rows, days, tiles
    assert seen[0][0] == 0
    assert seen[-1] == (done.partitions, done.partitions)
    assert done.files_before > done.files_after == done.partitions
    assert compact(spark, folder).partitions == 0


def test_one_compaction_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path)
    with locked(tmp_path, "compact"), pytest.raises(PipelineError, match="being compacted"):
        compact(spark, folder)
