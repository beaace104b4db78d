"""What state an embedded bus is in; no record is written, so it works when none can be."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mercury.bus.api import Record
from mercury.bus.embedded.catalogue import BusFile, bus_error, records_folder
from mercury.bus.embedded.log_files import LogFiles
from mercury.bus.embedded.log_page import LogPage, LogState
from mercury.bus.embedded.record_frame import HEADER_BYTES, is_whole, read_header, records_of
from mercury.model.errors import BusCorruptError, BusError, BusUnavailableError

# Check sums are verified from the end backwards, of all topics together about so much.
CHECKED_BYTES = 64 * 1024**2
# So much is read of the topic that the caller wants: hours of status records.
TAIL_BYTES = 8 * 1024**2


@dataclass(slots=True)
class Inspection:
    """What was found."""

    problem: BusError | None = None  # the first
    topics: int = 0
    size_bytes: int = 0
    checked_bytes: int = 0
    newest_us: int = 0  # time of the newest record
    tail: list[Record] = field(default_factory=list)  # newest records of the wanted topic


def inspect_bus(path: Path, wanted: str) -> Inspection:
    """Look at a bus file and its records, and read the newest ones of one topic."""
    found = Inspection()
    try:
        BusFile(path).close()  # opened as every part does: it says why it cannot be
    except BusError as error:
        found.problem = error
    try:
        topics = _topics(path)
    except (sqlite3.Error, BusError) as error:
        if not found.problem:
            found.problem = error if isinstance(error, BusError) else bus_error(error, path)
        return found
    found.topics = len(topics)
    for number, name in topics:
        folder = records_folder(path) / str(number)
        if not os.access(folder, os.W_OK) and not found.problem:
            found.problem = BusUnavailableError(f"the bus folder {folder} is read-only or missing")
        try:
            state = _state(folder)
            found.newest_us = max(found.newest_us, state.last_us)
            found.size_bytes += sum(file.stat().st_size for file in folder.glob("*.log"))
            budget = TAIL_BYTES if name == wanted else CHECKED_BYTES // len(topics)
            for data, at, size in _frames(LogFiles(folder), state, budget):
                found.checked_bytes += size
                if name == wanted:
                    found.tail += records_of(name, data, at)
        except OSError:
            continue  # retention has removed it meanwhile
        except BusError as error:
            found.problem = found.problem or error
    return found


def _topics(path: Path) -> list[tuple[int, str]]:
    # A folder that cannot be written may hold no shared memory of SQLite: then as it lies there.
    for mode in ("mode=ro", "immutable=1"):
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as file:
                (answer,) = file.execute("PRAGMA quick_check(1)").fetchone()
                if answer != "ok":
                    raise BusCorruptError(f"the bus file {path} is damaged: {answer}")
                return file.execute("SELECT id, name FROM topics").fetchall()
        except sqlite3.OperationalError:
            if mode == "immutable=1":
                raise
    raise AssertionError


def _state(folder: Path) -> LogState:
    """How far a topic goes. Of a copy: the page itself is opened to be written."""
    with TemporaryDirectory() as aside:
        copy = Path(aside) / "head"
        shutil.copyfile(folder / "head", copy)
        with closing(LogPage(copy)) as page:
            return page.state()


def _frames(files: LogFiles, state: LogState, budget: int) -> Iterator[tuple[bytes, int, int]]:
    """The newest frames, about so many bytes of them: data, where each begins, its size."""
    segments: list[tuple[int, int, int]] = []  # name, first byte, end
    for segment in reversed(files.segments()):
        if segment > state.segment or budget <= 0:
            continue
        end = state.size if segment == state.segment else files.path(segment).stat().st_size
        marks = files.index(segment, state)["at"]
        marks = marks[marks <= max(0, end - budget)]
        begin = int(marks[-1]) if len(marks) else 0
        segments.append((segment, begin, end))
        budget -= end - begin
    for segment, begin, end in reversed(segments):
        with files.path(segment).open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        at = 0
        while at < end - begin:
            if at + HEADER_BYTES > len(data):
                raise files.damaged(segment, begin + at)
            header = read_header(data, at)
            if not is_whole(data, at, header):
                raise files.damaged(segment, begin + at)
            yield data, at, header.size
            at += header.size
