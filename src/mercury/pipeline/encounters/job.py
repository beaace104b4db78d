"""The encounters job: reads stored reports, finds encounters and writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from mercury.matching.encounters import EncounterRule
from mercury.model.area import Area
from mercury.model.errors import ConfigurationError
from mercury.pipeline.encounters import transforms
from mercury.pipeline.encounters.transforms import Tiling
from mercury.pipeline.folders import check_output
from mercury.pipeline.history.days import days_of
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.journal import with_retry
from mercury.pipeline.history.queries import within
from mercury.pipeline.traces.tables import POSITION_COLUMNS, write_by_day

_NEEDED = ("client", "time_us", "lat", "lon", "offset")


@dataclass(frozen=True, slots=True)
class EncounterQuery:
    """Which encounters to find: of which clients, by which rule, when and where."""

    rule: EncounterRule
    of: str | None = None  # only those of this client
    between: tuple[str, str] | None = None  # only those of these two
    from_us: int | None = None
    to_us: int | None = None
    area: Area | None = None  # only while both are inside

    def __post_init__(self) -> None:
        if self.of is not None and self.between is not None:
            raise ConfigurationError("encounters are sought of one client, or between two")
        if self.between is not None and len(set(self.between)) == 1:
            raise ConfigurationError(f"{self.between[0]} cannot meet itself")

    @property
    def read_from_us(self) -> int | None:
        """Reports from before the beginning say where a client is then."""
        return None if self.from_us is None else self.from_us - round(self.rule.gap_s * 1e6)


class EncounterResult(NamedTuple):
    """The result: the number of encounters, and the first of them."""

    encounters: int
    pairs: int
    clients: int
    listed: list[Row]


def encounters_in(
    reports: DataFrame, asked: EncounterQuery, tiling: Tiling | None = None
) -> DataFrame:
    """The encounters in reports; the client asked for comes first (`ENCOUNTER`)."""
    rule = asked.rule
    tiling = tiling or Tiling.suiting(rule)
    reports = within(reports, asked.read_from_us, asked.to_us)

    def pieces(some: DataFrame, *, seen: bool = True, sees: bool = True) -> DataFrame:
        segments = transforms.segments(some, rule, asked.from_us, asked.to_us)
        return transforms.pieces(segments, rule, tiling, seen=seen, sees=sees, area=asked.area)

    if asked.between is not None:
        who, whom = (F.col("client") == one for one in asked.between)
    elif asked.of is not None:
        who, whom = F.col("client") == asked.of, F.col("client") != asked.of
    else:
        met = transforms.contacts(pieces(reports), rule, mutual=True)
        return transforms.encounters(met, rule)
    seeing = pieces(reports.where(who), seen=False)
    others = transforms.where_one_sees(pieces(reports.where(whom), sees=False), seeing)
    met = transforms.contacts(seeing.unionByName(others), rule, mutual=False)
    return transforms.encounters(met, rule)


def stored_reports(spark: SparkSession, folder: HistoryFolder, asked: EncounterQuery) -> DataFrame:
    """The stored reports of this query's time and area."""
    days = days_of(asked.read_from_us, asked.to_us)
    return folder.read(spark, "reports", *days).select(*_NEEDED)


def imported_positions(spark: SparkSession, folder: Path) -> DataFrame:
    """A table that `mercury import` wrote, as reports."""
    if not folder.is_dir() or not any(folder.glob("day=*/*.parquet")):
        raise ConfigurationError(f"{folder} is no folder of positions by day")
    rows = spark.read.parquet(f"file://{folder.absolute()}")
    missing = set(POSITION_COLUMNS) - set(rows.columns)
    if missing:
        raise ConfigurationError(f"the positions in {folder} have no {', '.join(sorted(missing))}")
    # A vehicle has one row per time: no order to keep.
    rows = rows.withColumnRenamed("vehicle", "client").withColumn("offset", F.lit(0))
    return rows.select(*_NEEDED)


def check_out(out: Path, source: Path, *, overwrite: bool) -> None:
    """Refuse to write over other data, above all the input."""
    there, read = out.absolute(), source.absolute()
    if there == read or there in read.parents or read in there.parents:
        raise ConfigurationError(f"{out} is, holds or is in the folder that is read")
    check_output(out, overwrite=overwrite)


def find(
    reports: Callable[[], DataFrame],
    asked: EncounterQuery,
    *,
    limit: int,
    out: Path | None = None,
) -> EncounterResult:
    """Find encounters, write all to a folder, if one is given, and list the first."""

    def query() -> EncounterResult:
        rows = reports()
        met = encounters_in(rows, asked, suiting_tiling(rows, asked))
        met.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if out is not None:
                write_by_day(met, out, "from_us", "from_us", "client", "other")
            return _found(met, limit)
        finally:
            met.unpersist()

    return with_retry(query)


def suiting_tiling(reports: DataFrame, asked: EncounterQuery) -> Tiling:
    """A cut by the number of reports in an hour that has any."""
    hour = F.floor(F.col("time_us") / transforms.HOUR_US)
    rows = within(reports, asked.read_from_us, asked.to_us)
    [sums] = rows.agg(F.count("*").alias("reports"), F.countDistinct(hour).alias("hours")).collect()
    return Tiling.suiting(asked.rule, sums.reports / max(sums.hours, 1))


def _found(encounters: DataFrame, limit: int) -> EncounterResult:
    [sums] = encounters.agg(
        F.count("*").alias("encounters"),
        F.countDistinct("client", "other").alias("pairs"),
    ).collect()
    who = encounters.select("client").union(encounters.select("other"))
    listed = encounters.orderBy("from_us", "client", "other").limit(limit).collect()
    return EncounterResult(sums.encounters, sums.pairs, who.distinct().count(), listed)
