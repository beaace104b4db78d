"""Ten million reports to statistics by cell and ten seconds, as Parquet: Spark beside its peers.

All three read the same files, do the same arithmetic and write their result; each is warm.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mercury.bench.processes import Say
from mercury.geo.grid import ROW, Grid
from mercury.pipeline.detection.transforms import cell_statistics
from mercury.pipeline.spark.session import start_session

ROUNDS = 3
_FILES = 4
_GRID = Grid(500.0)
_WINDOW_US = 10_000_000


def compare(rows: int, folder: Path, say: Say) -> dict[str, float]:
    """Seconds of the best round of each."""
    source = folder / "reports"
    say(f"{rows:,} reports are made")
    _make(rows, source)
    found = {}
    for name, prepare in (("spark", _spark), ("duckdb", _duckdb), ("polars", _polars)):
        work = prepare(source)
        best = float("inf")
        for number in range(1 + ROUNDS):  # the first is the warm-up
            say(f"{name}: {'warm-up' if not number else f'round {number} of {ROUNDS}'}")
            target = folder / f"{name}-{number}"
            begun = time.perf_counter()
            work(target)
            if number:
                best = min(best, time.perf_counter() - begun)
        found[name] = round(best, 3)
    _check(folder)
    return found


def _make(rows: int, source: Path) -> None:
    source.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in range(_FILES):
        count = rows // _FILES
        table = pa.table(
            {
                "client": rng.integers(0, 20_000, count, dtype=np.int32),
                "time_us": np.sort(rng.integers(0, 3600 * 1_000_000, count)),
                "lat": rng.uniform(40.5, 41.0, count),
                "lon": rng.uniform(-112.2, -111.7, count),
                "speed_mps": rng.uniform(0.0, 30.0, count),
            }
        )
        pq.write_table(table, source / f"{number}.parquet")


def _spark(source: Path) -> Callable[[Path], None]:
    spark = start_session("local[2]", settings={"spark.driver.memory": "4g"})

    def work(target: Path) -> None:
        frame = cell_statistics(spark.read.parquet(str(source)), _GRID, _WINDOW_US)
        frame.write.parquet(str(target))

    return work


def _duckdb(source: Path) -> Callable[[Path], None]:
    import duckdb

    step = _GRID.step_deg
    row = f"least(floor((lat + 90.0) / {step!r}), {_GRID.rows - 1})::BIGINT"
    columns = (
        f"greatest(floor(cos(radians((row + 0.5) * {step!r} - 90.0)) * 360.0 / {step!r}), 1)"
        "::BIGINT"
    )

    def work(target: Path) -> None:
        target.mkdir()
        duckdb.sql(
            f"""
            COPY (
              WITH rows AS (SELECT *, {row} AS row FROM read_parquet('{source}/*.parquet')),
              cells AS (SELECT *, {columns} AS columns FROM rows)
              SELECT
                row * {ROW} + floor((lon + 180.0) / 360.0 * columns)::BIGINT % columns AS cell,
                time_us - time_us % {_WINDOW_US} AS window_us,
                count(*) AS reports, avg(speed_mps) AS speed_mps,
                min(speed_mps) AS slowest_mps, max(speed_mps) AS fastest_mps
              FROM cells GROUP BY ALL
            ) TO '{target}/0.parquet'
            """
        )

    return work


def _polars(source: Path) -> Callable[[Path], None]:
    import polars as pl

    step = _GRID.step_deg

    def work(target: Path) -> None:
        target.mkdir()
        row = ((pl.col("lat") + 90.0) / step).floor().clip(upper_bound=_GRID.rows - 1)
        middle = ((pl.col("row") + 0.5) * step - 90.0).radians()
        columns = (middle.cos() * 360.0 / step).floor().clip(lower_bound=1.0)
        column = ((pl.col("lon") + 180.0) / 360.0 * pl.col("columns")).floor()
        (
            pl.scan_parquet(f"{source}/*.parquet")
            .with_columns(row=row)
            .with_columns(columns=columns)
            .group_by(
                cell=pl.col("row").cast(pl.Int64) * ROW
                + column.cast(pl.Int64) % pl.col("columns").cast(pl.Int64),
                window_us=pl.col("time_us") - pl.col("time_us") % _WINDOW_US,
            )
            .agg(
                reports=pl.len(),
                speed_mps=pl.col("speed_mps").mean(),
                slowest_mps=pl.col("speed_mps").min(),
                fastest_mps=pl.col("speed_mps").max(),
            )
            .collect()
            .write_parquet(target / "0.parquet")
        )

    return work


def _check(folder: Path) -> None:
    """Check that all three have the same result."""
    sums = []
    for name in ("spark", "duckdb", "polars"):
        table = pq.read_table(folder / f"{name}-{ROUNDS}", columns=["cell", "reports"])
        cells = table.column("cell").to_numpy()
        reports = table.column("reports").to_numpy().astype(np.int64)
        sums.append((len(cells), int(reports.sum()), int((cells % 1_000_003 * reports).sum())))
        for number in range(1 + ROUNDS):
            shutil.rmtree(folder / f"{name}-{number}")
    if len(set(sums)) != 1:
        raise AssertionError(f"the results differ: {sums}")
