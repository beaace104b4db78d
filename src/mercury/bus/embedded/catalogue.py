"""The files of a bus: how they are opened, what is in them, and what can be wrong with them.

The catalogue, the groups and their offsets are in an SQLite file. The records are in a folder
beside it, each topic's in files of its own: one of a few hundred bytes is appended there within
microseconds, and no checkpoint ever makes it wait.
"""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from mercury.bus.api import Sync
from mercury.bus.embedded.lock import LOCK_TIMEOUT_S, WriteLock
from mercury.bus.embedded.record_frame import Entry
from mercury.bus.embedded.topic_log import TopicLog
from mercury.bus.grouping import RegisteredConsumer, Registry, Topic
from mercury.model.errors import BusCorruptError, BusError, BusFullError, BusUnavailableError

T = TypeVar("T")

FILE_ERRORS = (sqlite3.Error, OSError)  # what using the files may raise; see `explained`

APPLICATION_ID = 0x4D455243  # "MERC"
SCHEMA_VERSION = 3
PAGE_SIZE = 2048
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# Topics whose files are kept open, at most; each takes up to three descriptors.
OPEN_LOGS = 256
_SHARE_OF_DESCRIPTORS = 1 / 8

_SCHEMA = f"""
CREATE TABLE meta (
    schema_version INTEGER NOT NULL, registry_version INTEGER NOT NULL, moved_us INTEGER NOT NULL
);
INSERT INTO meta VALUES ({SCHEMA_VERSION}, 1, 0);
CREATE TABLE topics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL
);
CREATE TABLE groups (name TEXT PRIMARY KEY, born_after_topic INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE committed (
    "group" TEXT NOT NULL, topic INTEGER NOT NULL, partition INTEGER NOT NULL,
    offset INTEGER NOT NULL, PRIMARY KEY ("group", topic, partition)
) WITHOUT ROWID;
CREATE TABLE listeners (
    id TEXT PRIMARY KEY, address TEXT NOT NULL, patterns TEXT NOT NULL, "group" TEXT,
    seen_us INTEGER NOT NULL, released INTEGER NOT NULL
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
"""


def records_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-records")


def bus_error(error: Exception, path: Path) -> BusError:
    """Say in one sentence what SQLite's or the system's error means for who runs this."""
    if isinstance(error, OSError):
        if error.errno in _NO_SPACE:
            return BusFullError(f"no space is left to append to the bus file {path}")
        if error.errno in _READ_ONLY:
            return BusUnavailableError(f"the bus file {path} is read-only: {error.strerror}")
        return BusUnavailableError(f"the bus file {path} cannot be used: {error.strerror}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_space(path)):
        return BusFullError(f"no space is left to append to the bus file {path}")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return BusCorruptError(f"the bus file {path} is damaged or is not a bus file: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return BusUnavailableError(f"the bus file {path} is locked by another program")
    if code == sqlite3.SQLITE_READONLY:
        return BusUnavailableError(f"the bus file {path} is read-only")
    return BusUnavailableError(f"the bus file {path} cannot be used: {error}")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise what goes wrong with the files in our words."""
    try:
        yield
    except FILE_ERRORS as error:
        raise bus_error(error, path) from error


def _no_space(path: Path) -> bool:
    try:
        there = os.statvfs(path.parent)
    except OSError:
        return False
    return there.f_bavail * there.f_frsize < 1024**2


class BusFile:
    """One connection to the bus file; writes are serialised between processes by a file lock."""

    def __init__(self, path: Path, sync: Sync = "process", open_logs: int = OPEN_LOGS) -> None:
        self.path = path
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed != resource.RLIM_INFINITY:
            open_logs = min(open_logs, max(1, int(allowed * _SHARE_OF_DESCRIPTORS)))
        self._open_logs = open_logs
        self._sync = sync
        self._logs: dict[int, TopicLog] = {}  # by topic id
        _check_place(path)
        with explained(path), ExitStack() as undo:
            _create_file(path)
            self.lock = WriteLock(path)
            undo.callback(self.lock.close)
            with self.lock.held():
                self.connection = undo.enter_context(closing(self._connect()))
                self.execute = self.connection.execute
                self.executemany = self.connection.executemany
                _prepare(self.connection, path)
                self._sync_commits(sync == "always")
                self.announce_registry()
            undo.pop_all()

    def _sync_commits(self, on: bool) -> None:
        """Whether a transaction of the SQLite file is on the disk when it ends."""
        self.execute(f"PRAGMA synchronous = {'FULL' if on else 'NORMAL'}")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            timeout=LOCK_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=1024,
        )

    def write(self, work: Callable[[], T]) -> T:
        """Run `work` in a transaction of the SQLite file.

        It is durable when this returns, or undone if it raises.
        """
        with self.lock.held():
            try:
                with explained(self.path):
                    self.execute("BEGIN IMMEDIATE")
                    result = work()
                    self.execute("COMMIT")
                    return result
            except BaseException:
                self.rollback()
                with suppress(*FILE_ERRORS):
                    self.announce_registry()  # a version that never comes would be waited for
                raise

    def append(self, topic: Topic, entries: Sequence[Entry], spread: Iterator[int]) -> bytes:
        """Append records to a topic, durably; return the frame they became."""
        log = self.log(topic)
        self.lock.acquire(topic.id)
        try:
            # The time is taken under the lock, so that it grows with the offsets.
            return log.append(
                entries,
                time.time_ns() // 1000,
                topic.partitions,
                spread,
                uptime_us=time.monotonic_ns() // 1000,
                sync=self._sync == "always",
            )
        except OSError as error:
            raise bus_error(error, self.path) from error
        finally:
            self.lock.release(topic.id)

    def log(self, topic: Topic) -> TopicLog:
        log = self._logs.pop(topic.id, None)
        if log is None:
            while len(self._logs) >= self._open_logs:  # the one that was not used for longest
                self._logs.pop(next(iter(self._logs))).close()
            with explained(self.path):
                log = self._open_log(topic)
        self._logs[topic.id] = log
        return log

    def _open_log(self, topic: Topic) -> TopicLog:
        folder = records_folder(self.path) / str(topic.id)
        return TopicLog(
            folder, topic.name, partial(self.lock.held, topic.id), partial(self._committed, topic)
        )

    def _committed(self, topic: Topic) -> int:
        """How far any group has read a topic."""
        (offset,) = self.execute(
            "SELECT max(offset) FROM committed WHERE topic = ?", (topic.id,)
        ).fetchone()
        return offset or 0

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        try:
            self.connection.close()
        finally:
            self.lock.close()

    # The registry: read by everybody, written inside `write`.

    def registry(self, known: Registry, *, look: bool = False) -> Registry:
        """Return `known` if it is up to date, or what the running transaction sees.

        With `look`, ask the tables even if nothing was announced.
        """
        if not look and self.lock.version() == known.version:
            return known
        alone = not self.connection.in_transaction
        if alone:
            self.execute("BEGIN")
        try:
            version, moved_us = self.execute(
                "SELECT registry_version, moved_us FROM meta"
            ).fetchone()
            topics = self.execute("SELECT id, name, partitions FROM topics ORDER BY id").fetchall()
            listeners = self.execute(
                'SELECT id, address, patterns, "group" FROM listeners ORDER BY id'
            ).fetchall()
        finally:
            if alone:
                self.rollback()
        return Registry(
            version,
            tuple(Topic(*row) for row in topics),
            tuple(
                RegisteredConsumer(id_, address, tuple(patterns.split()), group)
                for id_, address, patterns, group in listeners
            ),
            moved_us,
        )

    def change_registry(self) -> None:
        """Count up the version, inside `write`, after topics or listeners were changed."""
        self.execute("UPDATE meta SET registry_version = registry_version + 1")
        self.announce_registry()

    def change_listeners(self) -> None:
        """The same, when somebody came or went."""
        self.execute("UPDATE meta SET moved_us = ?", (time.monotonic_ns() // 1000,))
        self.change_registry()

    def announce_registry(self) -> None:
        (version,) = self.execute("SELECT registry_version FROM meta").fetchone()
        self.lock.announce(version)

    def create_topics(self, names: Iterable[str], partitions: int) -> None:
        """Make topics that do not exist yet."""

        def create() -> None:
            records = records_folder(self.path)
            mode = self.path.stat().st_mode & 0o666
            records.mkdir(mode=mode | (mode & 0o444) >> 2, exist_ok=True)
            known = dict(self.execute("SELECT name, id FROM topics"))
            missing = [name for name in names if name not in known]
            for topic_id, name in enumerate(missing, max(known.values(), default=0) + 1):
                # The place first, so that whoever finds a topic in the catalogue also finds its
                # records.
                TopicLog.create(records / str(topic_id))
                self.execute("INSERT INTO topics VALUES (?, ?, ?)", (topic_id, name, partitions))
            if missing:
                self.change_registry()

        self._sync_commits(self._sync != "process")
        self.write(create)
        self._sync_commits(self._sync == "always")


def _create_file(path: Path) -> None:
    """Make the bus file for its owner alone: whoever can read it can forge messages.

    The bus's other files are made for the same people. One that is there must not be opened:
    closing it would give up the locks that SQLite has on it in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise BusUnavailableError(f"the bus file {path} is a directory")
    if not path.parent.is_dir():
        raise BusUnavailableError(f"the folder {path.parent} of the bus file does not exist")
    if path.exists() and not os.access(path, os.W_OK):
        raise BusUnavailableError(f"the bus file {path} is read-only")
    if not os.access(path.parent, os.W_OK):
        raise BusUnavailableError(f"the folder {path.parent} of the bus file is read-only")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a bus, create one in an empty file, and set the connection up."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables or application_id:
            raise BusCorruptError(f"the file {path} is a database, but not a Mercury bus")
    # The hot connections never checkpoint: that syncs, and is the upkeep thread's business.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise BusUnavailableError(f"the bus file {path} is on a file system without shared memory")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if application_id != APPLICATION_ID:
        connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
    rows = connection.execute("SELECT schema_version FROM meta").fetchall()
    if len(rows) != 1:
        raise BusCorruptError(f"the bus file {path} is damaged: it does not say its version")
    (version,) = rows[0]
    if version != SCHEMA_VERSION:
        raise BusCorruptError(
            f"the bus file {path} has version {version},"
            f" this Mercury reads version {SCHEMA_VERSION}"
        )
