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
from mercury.pipeline.history.tables import FILE_ROWS, TABLES

_STAGING = "_staging"
_DAY = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_FLUSHERS = 8


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

    def days(self, table: str, first_day: str = "", last_day: str = "~") -> list[str]:
        """The days of a table from one to another, oldest first."""
        folder = self.path / table
        names = os.listdir(folder) if folder.is_dir() else []
        found = sorted(match[1] for name in names if (match := _DAY.fullmatch(name)))
        return [day for day in found if first_day <= day <= last_day]

    def partitions(
        self,
        table: str,
        first_day: str = "",
        last_day: str = "~",
        tiles: Iterable[str] | None = None,
    ) -> Iterator[Partition]:
        """The partitions of a table, of some days and tiles."""
        for day in self.days(table, first_day, last_day):
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
        days = self.days(table, first_day, last_day)
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
        """Hold the folder unchanged: files listed now are complete, each row once.

        A change that a dead process began is completed first.
        """
        with locked(self.path, "change"):
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

    def offsets(self) -> Offsets:
        """Up to which offsets the bus is stored."""
        return self._journal.offsets()

    def new_staging(self, purpose: str) -> Path:
        """A hidden folder to prepare a change in."""
        path = self.path / _STAGING / f"{purpose}-{uuid.uuid4().hex[:12]}"
        path.mkdir(parents=True)
        return path

    def drop_staging(self, purpose: str) -> None:
        """Remove what dead processes prepared; only one process may use this purpose."""
        with self.at_rest():
            pass  # an interrupted change needs what it prepared
        for path in (self.path / _STAGING).glob(f"{purpose}-*"):
            shutil.rmtree(path, ignore_errors=True)

    def stage(self, rows: DataFrame, staging: Path, table: str) -> None:
        """Write rows, by day and tile, to a hidden folder."""
        # One task a partition, one vehicle together.
        ordered = rows.repartition("day", "tile").sortWithinPartitions(
            "day", "tile", *TABLES[table].order
        )
        writer = ordered.write.partitionBy("day", "tile").option("compression", "zstd")
        writer.option("maxRecordsPerFile", FILE_ROWS).parquet(_uri(staging / table))

    def add(self, staging: Path, names: list[str], label: str, offsets: Offsets) -> None:
        """Move staged files into place, under names that begin with the label."""
        files = [staging / name for name in sorted(names)]
        flush(files)
        moves = []
        for number, file in enumerate(files):
            place = file.parent.relative_to(staging) / f"{label}-{number:05}.parquet"
            moves.append((str(file.relative_to(self.path)), str(place)))
        with self.at_rest():
            self._journal.commit(Change(moves=moves, offsets=offsets))
        shutil.rmtree(staging, ignore_errors=True)

    def replace(self, staging: Path, partitions: list[Partition]) -> int:
        """Replace partitions' files by staged ones; returns how many were unchanged until now."""
        label = staging.name
        swaps = []
        with self.at_rest():
            for one in partitions:
                place, new = self.path / one.place, staging / one.place
                if not all(file.exists() for file in one.files):
                    continue  # the day was deleted
                merged = sorted(new.glob("*.parquet"))
                flush(merged)
                for hidden in new.glob(".*"):
                    hidden.unlink()
                for number, file in enumerate(merged):
                    file.rename(new / f"{label}-{number:05}.parquet")
                # New and large files are left.
                for file in set(place.glob("*.parquet")) - set(one.files):
                    os.link(file, new / file.name)
                swaps.append((str(new.relative_to(self.path)), one.place))
            self._journal.commit(Change(swaps=swaps))
        shutil.rmtree(staging, ignore_errors=True)
        return len(swaps)


def flush(files: list[Path]) -> None:
    """Flush files to disk: a partly written one would fail every reader of the folder."""

    def sync(file: Path) -> None:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())

    with ThreadPoolExecutor(_FLUSHERS) as pool:
        list(pool.map(sync, files))


def _uri(path: Path) -> str:
    # Else a cluster's default file system would be used.
    return f"file://{path}"
