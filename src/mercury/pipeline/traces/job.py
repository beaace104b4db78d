"""One import: files in, positions and rejects out, and a summary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from time import monotonic

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.bus import Bus
from mercury.model.errors import ConfigurationError
from mercury.pipeline.folders import check_output
from mercury.pipeline.traces import (
    csv_files,
    gtfs_realtime,
    inputs,
    parquet_files,
    reports,
    sumo_fcd,
    tables,
)
from mercury.pipeline.traces.checks import checked
from mercury.pipeline.traces.columns import Reading, iso_time
from mercury.pipeline.traces.inputs import Alike
from mercury.pipeline.traces.interpret import check_reading, fixes
from mercury.pipeline.traces.text_rows import UNREADABLE, read_with

FORMATS = {
    "csv": csv_files,
    "parquet": parquet_files,
    "gtfs-realtime": gtfs_realtime,
    "sumo-fcd": sumo_fcd,
}
MAX_SPEED_MPS = 100.0

# Shows a step while it runs; yields a function that takes the reports appended so far.
Stage = Callable[[str], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class Import:
    """What to import, and where to."""

    paths: Sequence[Path]
    rejects: Path
    parquet: Path | None = None
    bus: Bus | None = None
    speed: float = math.inf  # times as fast as it was
    reading: Reading = field(default_factory=Reading)
    file_format: str = "auto"
    max_speed_mps: float = MAX_SPEED_MPS
    rejects_format: str = "parquet"
    overwrite: bool = False


@dataclass(slots=True)
class ImportSummary:
    """What an import did."""

    files: int
    rows: int = 0
    kept: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    out_of_order: int = 0  # kept, and put where they belong
    vehicles: int = 0
    first: str | None = None
    last: str | None = None
    appended: int = 0  # to the bus
    seconds: float = 0.0
    rows_per_s: int = 0


def _silent(_title: str) -> AbstractContextManager[Callable[[int], None]]:
    return nullcontext(lambda count: None)


def find_files(wanted: Import) -> dict[str, list[str]]:
    """The files by format; raises ConfigurationError where they or the outputs cannot be used."""
    files = inputs.find(wanted.paths, wanted.file_format)
    found = [Path(path) for paths in files.values() for path in paths]
    if not any(path.stat().st_size for path in found):
        raise ConfigurationError("there is nothing to import: every file given is empty")
    table, rejects = (wanted.parquet or Path()).resolve(), wanted.rejects.resolve()
    if wanted.parquet and (rejects.is_relative_to(table) or table.is_relative_to(rejects)):
        raise ConfigurationError(f"--rejects {wanted.rejects} would mix with the table in {table}")
    for folder in filter(None, (wanted.parquet, wanted.rejects)):
        check_output(folder, overwrite=wanted.overwrite)
        if any(path.is_relative_to(folder.absolute()) for path in found):
            raise ConfigurationError(f"{folder} holds files to import, and would be replaced")
    return files


def columns_taken(wanted: Import) -> list[Alike]:
    """What is read from which columns of which files, and in which units."""
    check_reading(None, wanted.reading)
    return [
        one
        for kind, paths in find_files(wanted).items()
        for one in FORMATS[kind].inspect(paths, wanted.reading)[0]
    ]


def read(spark: SparkSession, kind: str, paths: Sequence[str], reading: Reading) -> DataFrame:
    """The fixes of files of one format."""
    files = FORMATS[kind]
    found, doubtful = files.inspect(paths, reading)
    frames: list[DataFrame] = [files.read(spark, one) for one in found]
    if doubtful:
        frames.append(fixes(read_with(spark, doubtful, files.damage), reading))
    return reduce(DataFrame.unionByName, frames)


def run(spark: SparkSession, wanted: Import, stage: Stage = _silent) -> ImportSummary:
    """Read, check and write; a bad row or file is rejected, only a wrong request stops it."""
    files = find_files(wanted)
    check_reading(spark, wanted.reading)
    begun = monotonic()
    frames = [read(spark, kind, paths, wanted.reading) for kind, paths in files.items()]
    # The original of an accepted row is not needed any more.
    judged = checked(reduce(DataFrame.unionByName, frames), wanted.max_speed_mps).withColumn(
        "original", F.when(F.col("problem").isNotNull(), F.col("original"))
    )
    judged.persist(StorageLevel.MEMORY_AND_DISK)  # read once, however many outputs
    try:
        with stage("reading and checking"):
            summary = _summary(judged, sum(map(len, files.values())))
        with stage("writing the rejects"):
            tables.write_rejects(tables.rejects(judged), wanted.rejects, wanted.rejects_format)
        believed = tables.positions(judged)
        if wanted.parquet is not None and summary.kept:
            with stage("writing the positions"):
                tables.write_by_day(believed, wanted.parquet, "time_us", "vehicle", "time_us")
        if wanted.bus is not None and summary.kept:
            with stage("appending to the bus") as appended:
                records = reports.reports(believed, summary.kept)
                summary.appended = reports.append(records, wanted.bus, wanted.speed, appended)
    finally:
        judged.unpersist()
    summary.seconds = round(monotonic() - begun, 2)
    summary.rows_per_s = round(summary.rows / max(summary.seconds, 0.01))
    return summary


def _summary(judged: DataFrame, files: int) -> ImportSummary:
    by_problem = judged.groupBy("problem").agg(
        F.count("*").alias("rows"),
        F.count_if("late").alias("late"),
        F.min("time_us").alias("first"),
        F.max("time_us").alias("last"),
    )
    found = {row.problem: row for row in by_problem.collect()}
    good = found.pop(None, None)
    summary = ImportSummary(files)
    summary.rejected = {
        problem: row.rows for problem, row in sorted(found.items(), key=lambda one: -one[1].rows)
    }
    summary.rows = sum(n for problem, n in summary.rejected.items() if problem != UNREADABLE)
    if good is not None:
        summary.rows += good.rows
        summary.kept, summary.out_of_order = good.rows, good.late
        summary.first, summary.last = iso_time(good.first), iso_time(good.last)
        summary.vehicles = tables.positions(judged).select("vehicle").distinct().count()
    return summary
