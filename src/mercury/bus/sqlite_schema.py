"""The bus file: how it is opened, what is in it, and what can be wrong with it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mercury.bus.grouping import Listener, Registry, Topic
from mercury.bus.sqlite_lock import WriteLock
from mercury.model.errors import BusCorruptError, BusError, BusFullError, BusUnavailableError

T = TypeVar("T")

APPLICATION_ID = 0x4D455243  # "MERC"
SCHEMA_VERSION = 1
LOCK_TIMEOUT_S = 2.0
# The log takes whole pages, so small ones make short commits and half the log that 4 KiB makes.
# With records of 300 bytes and 1, 2, 4, 8 KiB the medians for one record were 21, 20, 19, 27 µs,
# for eight 52, 52, 80, 83 µs; batches of 64 did not differ beyond the noise. Mapping the file
# into memory brings nothing: what is read was just written, and is still in the log.
PAGE_SIZE = 2048
CACHE_KIB = 8192
# A record with this partition holds the place of the newest offset after retention took the
# record itself, so that SQLite never gives an offset twice. AUTOINCREMENT would write one more
# page in every transaction.
TOMBSTONE = -1

_SCHEMA = f"""
CREATE TABLE meta (schema_version INTEGER NOT NULL, registry_version INTEGER NOT NULL);
INSERT INTO meta VALUES ({SCHEMA_VERSION}, 1);
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
    seen_us INTEGER NOT NULL
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
"""

_TOPIC_TABLE = """
CREATE TABLE topic_{id} (
    offset INTEGER PRIMARY KEY, partition INTEGER NOT NULL, timestamp_us INTEGER NOT NULL,
    key BLOB NOT NULL, headers BLOB NOT NULL, value BLOB NOT NULL
)"""


def bus_error(error: sqlite3.Error, path: Path) -> BusError:
    """Say in one sentence what SQLite's error means for the person who runs this."""
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


def _no_space(path: Path) -> bool:
    try:
        there = os.statvfs(path.parent)
    except OSError:
        return False
    return there.f_bavail * there.f_frsize < 1024**2


class BusFile:
    """One connection to the bus file; writes are serialised between processes by a file lock."""

    def __init__(
        self,
        path: Path,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        max_file_bytes: int | None = None,
    ) -> None:
        self.path = path
        _check_place(path)
        self.lock = WriteLock(path, lock_timeout_s)
        try:
            self.connection = self._connect(lock_timeout_s, max_file_bytes)
        except BaseException:
            self.lock.close()
            raise
        self.execute = self.connection.execute
        self.executemany = self.connection.executemany

    def _connect(self, timeout_s: float, max_file_bytes: int | None) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        self.lock.acquire()
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=1024,
            )
            _prepare(connection, self.path)
            (version,) = connection.execute("SELECT registry_version FROM meta").fetchone()
            self.lock.announce(version)
            if max_file_bytes is not None:
                connection.execute(f"PRAGMA max_page_count = {max_file_bytes // PAGE_SIZE}")
            return connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise bus_error(error, self.path) from error
            raise
        finally:
            self.lock.release()

    def write(self, work: Callable[[], T], *, single: bool = False) -> T:
        """Run `work` in a transaction that is durable when this returns, or undone if it raises.

        A single statement is a transaction by itself, without the cost of BEGIN and COMMIT; if
        it turns out to be more, `work` calls `begin`.
        """
        self.lock.acquire()
        try:
            if not single:
                self.begin()
            result = work()
            if self.connection.in_transaction:
                self.execute("COMMIT")
            return result
        except BaseException as error:
            self.rollback()
            if isinstance(error, sqlite3.Error):
                raise bus_error(error, self.path) from error
            raise
        finally:
            self.lock.release()

    def begin(self) -> None:
        if not self.connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
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
            (version,) = self.execute("SELECT registry_version FROM meta").fetchone()
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
                Listener(id_, address, tuple(patterns.split()), group)
                for id_, address, patterns, group in listeners
            ),
        )

    def change_registry(self) -> None:
        """Count up the version, inside `write`, after topics or listeners were changed."""
        self.execute("UPDATE meta SET registry_version = registry_version + 1")
        self.announce_registry()

    def announce_registry(self) -> None:
        (version,) = self.execute("SELECT registry_version FROM meta").fetchone()
        self.lock.announce(version)

    def create_topic(self, name: str, partitions: int) -> None:
        made = self.execute(
            "INSERT INTO topics (name, partitions) VALUES (?, ?)", (name, partitions)
        )
        self.execute(_TOPIC_TABLE.format(id=made.lastrowid))


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
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if application_id != APPLICATION_ID:
        connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
    (version,) = connection.execute("SELECT schema_version FROM meta").fetchone()
    if version != SCHEMA_VERSION:
        raise BusCorruptError(
            f"the bus file {path} has version {version},"
            f" this Mercury reads version {SCHEMA_VERSION}"
        )
