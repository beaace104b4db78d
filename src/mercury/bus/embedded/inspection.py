"""What state an embedded bus is in; no record is written, so it works when none can be."""

from __future__ import annotations

import mmap
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mercury.bus.api import Record
from mercury.bus.embedded.catalogue import BusFile, explained, records_folder
from mercury.bus.embedded.log_files import Explanation, Frame, Gap, LogFiles, Place
from mercury.bus.embedded.log_page import LogPage, LogState, PageDamagedError
from mercury.bus.embedded.record_frame import records_of
from mercury.bus.embedded.topic_log import ENDLESS, PAGE
from mercury.bus.grouping import Registry
from mercury.model.errors import BusCorruptError, BusError, BusUnavailableError

# Check sums are verified from the end backwards, of all topics together about so much.
CHECKED_BYTES = 64 * 1024**2
# So much is read of the topic that the caller wants: hours of status records.
TAIL_BYTES = 32 * 1024**2


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a topic that cannot be read."""

    topic: str
    found: str  # one sentence
    gap: Gap | None = None  # None: no record is missing
    explanation: Explanation | None = None  # why, if that is known


@dataclass(slots=True)
class Inspection:
    """What was found."""

    problem: BusError | None = None  # the first thing that keeps the bus from being used
    topics: int = 0
    size_bytes: int = 0
    checked_bytes: int = 0
    newest_us: int = 0  # time of the newest record
    tail: list[Record] = field(default_factory=list)  # newest records of the wanted topic
    damage: list[Damage] = field(default_factory=list)


def inspect_bus(path: Path, wanted: str = "", checked_bytes: int = CHECKED_BYTES) -> Inspection:
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
        if not folder.is_dir():
            lost = f"the bus folder {folder} is missing: the records of {name} are lost"
            found.damage.append(Damage(name, lost))
            continue
        if not os.access(folder, os.W_OK) and not found.problem:
            found.problem = BusUnavailableError(f"the bus folder {folder} is read-only")
        budget = TAIL_BYTES if name == wanted else checked_bytes // len(topics)
        try:
            with closing(LogFiles(folder, os.O_RDONLY)) as files:
                _inspect(found, name, files, budget, keep=name == wanted)
        except OSError:
            continue  # retention has removed it meanwhile
    return found


def _inspect(found: Inspection, topic: str, files: LogFiles, budget: int, *, keep: bool) -> None:
    found.size_bytes += sum(file.stat().st_size for file in files.folder.glob("*.log"))
    with ExitStack() as opened:
        try:
            page = LogPage(files.folder / PAGE, mmap.ACCESS_READ)
            opened.callback(page.close)
            state_now = page.state
            state = state_now()
        except PageDamagedError as error:
            found.damage.append(Damage(topic, f"{error}; it is made anew when it is needed"))
            state = ENDLESS._replace(oldest=min(files.segments(), default=ENDLESS.next))
            state_now = partial(LogState._make, state)
        for one in _newest(files, state, budget):
            if isinstance(one, Frame):
                found.checked_bytes += one.header.size
                found.newest_us = max(found.newest_us, one.header.timestamp_us)
                if keep:
                    found.tail += records_of(topic, one.data, one.begin)
            elif state_now().oldest < one.end < ENDLESS.next:  # retention has not removed it
                said = f"{topic}: {files.describe(one)}"
                found.damage.append(Damage(topic, said, one, files.explanation(one)))


def repair_bus(path: Path) -> list[Damage]:
    """Make what is missing anew, and accept what cannot be; return what was found."""
    found = inspect_bus(path, checked_bytes=sys.maxsize)
    if found.problem is not None:
        raise found.problem
    file = BusFile(path)
    with explained(path), closing(file):
        for topic in file.registry(Registry(version=-1)).topics:
            file.log(topic).accept_gaps()
    return found.damage


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
        return file.execute("SELECT id, name FROM topics ORDER BY id").fetchall()


def _newest(files: LogFiles, state: LogState, budget: int) -> Iterator[Frame | Gap]:
    """About `budget` bytes at the end of a topic, from the oldest of them on."""
    segments = [one for one in files.segments() if one <= state.segment]
    begin = (segments or [state.next])[0]
    if state.oldest < begin:
        yield Gap(0, 0, 0, state.oldest, begin, 0)
    place = Place(0, 0, 0)
    for segment in reversed(segments):
        place = Place(segment, 0, segment)
        budget -= files.size(segment, state)
        if budget <= 0:
            place = files.noted(segment, state, "at", 1 - budget)
            break
    if segments:
        yield from files.walk(place, state)
