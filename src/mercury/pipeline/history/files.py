"""The folder of stored tables: `<table>/day=YYYY-MM-DD/tile=<tile>/….parquet`.

Everything else in it begins with `_`, which Parquet tools pass by. Any tool may read the folder,
and days may be deleted by hand.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from mercury.pipeline.history.journal import Change, Journal, Offsets, locked
from mercury.pipeline.history.tables import TABLES, by_place

_STAGING = "_staging"
_CHANGE = "change"
_DAY = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_FLUSHERS = 8
# Keeps the files of a busy tile below a few hundred megabytes.
_FILE_ROWS = 4_000_000


class Partition(NamedTuple):
    """A day and tile of a table."""

    table: str
    day: str
    tile: str
    files: tuple[Path, ...]

    @property
    def place(self) -> str:
        return f"{self.table}/day={self.day}/tile={self.tile}"


class HistoryFolder:
    """Stored tables, and how they change."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._journal = Journal(self.path)

    # Reading

    def days(self, table: str) -> list[str]:
        """The days of a table, oldest first."""
        folder = self.path / table
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(found[1] for name in names if (found := _DAY.fullmatch(name)))

    def partitions(
        self,
        table: str,
        first_day: str = "",
        last_day: str = "~",
        tiles: Iterable[str] | None = None,
    ) -> Iterator[Partition]:
        """What is stored of a table, of some days and tiles."""
        for day in self.days(table):
            if not first_day <= day <= last_day:
                continue
            place = self.path / table / f"day={day}"
            folders = (
                place.glob("tile=*") if tiles is None else (place / f"tile={t}" for t in tiles)
            )
            for folder in sorted(folders):
                files = tuple(sorted(folder.glob("[!_.]*.parquet")))
                yield Partition(table, day, folder.name.removeprefix("tile="), files)

    def read(
        self, spark: SparkSession, table: str, first_day: str = "", last_day: str = "~"
    ) -> DataFrame:
        """A table's rows, of some days."""
        days = [day for day in self.days(table) if first_day <= day <= last_day]
        return self.read_files(spark, table, [self.path / table / f"day={day}" for day in days])

    def read_files(self, spark: SparkSession, table: str, files: list[Path]) -> DataFrame:
        """The rows of some of a table's files or folders."""
        if not files:
            return spark.createDataFrame([], TABLES[table].schema)
        reader = spark.read.schema(TABLES[table].schema)
        reader = reader.option("basePath", _uri(self.path / table))
        return reader.parquet(*map(_uri, files))

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nothing comes or goes meanwhile: files listed now are all there are, each row once."""
        with locked(self.path, _CHANGE):
            self._journal.recover()
            yield

    def files(
        self,
        table: str,
        first_day: str = "",
        last_day: str = "~",
        tiles: Iterable[str] | None = None,
    ) -> list[Path]:
        """A table's files, of some days and tiles."""
        found = self.partitions(table, first_day, last_day, tiles)
        return [file for one in found for file in one.files]

    # Changing

    def recover(self) -> None:
        """Finish the change that a dead process has begun."""
        with locked(self.path, _CHANGE):
            self._journal.recover()

    def offsets(self) -> Offsets:
        """How far the bus is stored."""
        return self._journal.offsets()

    def new_staging(self, purpose: str) -> Path:
        """A hidden folder to prepare a change in."""
        path = self.path / _STAGING / f"{purpose}-{uuid.uuid4().hex[:12]}"
        path.mkdir(parents=True)
        return path

    def drop_staging(self, purpose: str) -> None:
        """Remove what dead processes prepared; only for who alone has this purpose."""
        self.recover()
        for path in (self.path / _STAGING).glob(f"{purpose}-*"):
            shutil.rmtree(path, ignore_errors=True)

    def stage(self, rows: DataFrame, staging: Path, table: str) -> None:
        """Write rows, with their day and tile, where nobody looks yet."""
        writer = (
            by_place(rows, TABLES[table])
            .write.partitionBy("day", "tile")
            .option("compression", "zstd")
        )
        writer.option("maxRecordsPerFile", _FILE_ROWS).parquet(_uri(staging / table))

    def add(self, staging: Path, names: list[str], label: str, offsets: Offsets) -> None:
        """Put staged files in place, under names that begin with the label."""
        files = [staging / name for name in sorted(names)]
        flush(files)
        moves = []
        for number, file in enumerate(files):
            place = file.parent.relative_to(staging) / f"{label}-{number:05}.parquet"
            moves.append((str(file.relative_to(self.path)), str(place)))
        with locked(self.path, _CHANGE):
            self._journal.commit(Change(moves=moves, offsets=offsets))
        shutil.rmtree(staging, ignore_errors=True)

    def replace(self, staging: Path, partitions: list[Partition]) -> int:
        """Swap partitions' files for those staged; how many partitions were still as they were."""
        label = staging.name
        swaps = []
        with locked(self.path, _CHANGE):
            self._journal.recover()
            for one in partitions:
                place, new = self.path / one.place, staging / one.place
                if not all(file.exists() for file in one.files):
                    continue  # somebody deleted the day
                merged = sorted(new.glob("*.parquet"))
                flush(merged)
                for hidden in new.glob(".*"):
                    hidden.unlink()
                for number, file in enumerate(merged):
                    file.rename(new / f"{label}-{number:05}.parquet")
                # What came meanwhile, and what was large enough, stays as it is.
                for file in set(place.glob("*.parquet")) - set(one.files):
                    os.link(file, new / file.name)
                swaps.append((str(new.relative_to(self.path)), one.place))
            self._journal.commit(Change(swaps=swaps))
        shutil.rmtree(staging, ignore_errors=True)
        return len(swaps)


def flush(files: list[Path]) -> None:
    """Wait until files are on the disk: a torn one would stop every reader of the folder."""
    with ThreadPoolExecutor(_FLUSHERS) as pool:
        list(pool.map(_flush, files))


def _flush(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _uri(path: Path) -> str:
    # Else a cluster's default file system would be meant.
    return f"file://{path}"
