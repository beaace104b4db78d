"""What state an embedded bus is in; no record is written, so it works when none can be."""

from __future__ import annotations

import mmap
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from mercury.bus.api import Record
from mercury.bus.embedded.catalogue import BusFile, explained, records_folder
from mercury.bus.embedded.log_files import Frame, LogFiles
from mercury.bus.embedded.log_page import LogPage, LogState
from mercury.bus.embedded.record_frame import records_of
from mercury.bus.embedded.topic_log import PAGE
from mercury.model.errors import BusCorruptError, BusError, BusUnavailableError

# Check sums are verified from the end backwards, of all topics together about so much.
CHECKED_BYTES = 64 * 1024**2
# So much is read of the topic that the caller wants: hours of status records.
TAIL_BYTES = 32 * 1024**2


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
        with explained(path):
            topics = _topics(path)
    except BusError as error:
        found.problem = found.problem or error
        return found
    found.topics = len(topics)
    for number, name in topics:
        folder = records_folder(path) / str(number)
        if not os.access(folder, os.W_OK) and not found.problem:
            found.problem = BusUnavailableError(f"the bus folder {folder} is read-only or missing")
        try:
            with closing(LogPage(folder / PAGE, mmap.ACCESS_READ)) as page:
                state = page.state()
            found.newest_us = max(found.newest_us, state.last_us)
            found.size_bytes += sum(file.stat().st_size for file in folder.glob("*.log"))
            budget = TAIL_BYTES if name == wanted else CHECKED_BYTES // len(topics)
            with closing(LogFiles(folder, os.O_RDONLY)) as files:
                for frame in _newest(files, state, budget):
                    found.checked_bytes += frame.header.size
                    if name == wanted:
                        found.tail += records_of(name, frame.data, frame.begin)
        except OSError:
            continue  # retention has removed it meanwhile
        except BusError as error:
            found.problem = found.problem or error
    return found


def _topics(path: Path) -> list[tuple[int, str]]:
    try:
        return _topics_by(path, "mode=ro")
    except sqlite3.OperationalError:
        # A folder that cannot be written may hold no shared memory of SQLite: as it lies there.
        return _topics_by(path, "immutable=1")


def _topics_by(path: Path, mode: str) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as file:
        (answer,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise BusCorruptError(f"the bus file {path} is damaged: {answer}")
        return file.execute("SELECT id, name FROM topics").fetchall()


def _newest(files: LogFiles, state: LogState, budget: int) -> Iterator[Frame]:
    """The frames of about `budget` bytes at the end of a topic, from the oldest of them on."""
    segment, at = state.segment, 0
    for segment in reversed([one for one in files.segments() if one <= state.segment]):
        budget -= files.size(segment, state)
        if budget <= 0:
            at = files.noted(segment, state, "at", 1 - budget)
            break
    return files.frames(segment, at, state)
