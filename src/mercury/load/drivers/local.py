"""Load that no other program receives.

`null:` discards it, to measure the generator itself. `file:PATH` writes a trace, as gzipped CSV
that `mercury import` and others can read.
"""

from __future__ import annotations

import gzip
from typing import IO

from mercury.load.counters import LoadCounters
from mercury.load.drivers.api import Batch, Clock, Say
from mercury.load.workload import Workload
from mercury.model.errors import LoadError

HEADER = "time_us,id,side,lat,lon\n"
_QUICK = 1  # the level of compression; higher ones cost more than the generator


class NullDriver:
    """Only counts updates."""

    def __init__(self) -> None:
        self.counters = LoadCounters(taken=0, dropped=0)

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Nothing to connect to."""
        self.counters.note("nothing was sent: null: measures the generator alone")

    def send(self, batch: Batch) -> None:
        self.counters.sent += len(batch)
        self.counters.taken = self.counters.sent

    async def drain(self, timeout_s: float) -> None:
        """No events are outstanding."""

    async def close(self) -> None:
        """Nothing was opened."""


class TraceFileDriver(NullDriver):
    """Writes a line for each update."""

    def __init__(self, path: str) -> None:
        if not path.endswith(".csv.gz"):
            raise LoadError(f"a trace is gzipped CSV, so file:{path} must end with .csv.gz")
        super().__init__()
        self._path = path
        self._file: IO[str] | None = None
        self._names: list[str] = []

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Create the file, or overwrite it."""
        try:
            self._file = gzip.open(self._path, "wt", _QUICK, encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise LoadError(f"cannot write {self._path}: {error.strerror}") from None
        self._file.write(HEADER)
        self._names = [
            f"{workload.id_of(entity)},{workload.side_of(entity)}"
            for entity in range(len(workload))
        ]

    def send(self, batch: Batch) -> None:
        assert self._file is not None
        names = self._names
        rows = zip(*(column.tolist() for column in batch[:4]), strict=True)
        lines = [
            f"{time_us},{names[entity]},{lat:.7f},{lon:.7f}\n" for entity, lat, lon, time_us in rows
        ]
        try:
            self._file.write("".join(lines))
        except OSError as error:
            self.counters.unsent += len(batch)
            self.counters.note(f"the file could not be written any more: {error.strerror}")
            return
        super().send(batch)

    async def close(self) -> None:
        if self._file is not None:
            self._file.close()
