"""The files of a bus: how they are opened, what is in them, and what can be wrong with them.

The catalogue, the groups and their offsets are in the main file. Records are spread over a few
further files by topic, so that an adapter that appends reports and a broker that appends replies
do not wait for each other, and do not make each other read again what they had in memory.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TypeVar

from mercury.bus.grouping import Listener, Registry, Topic
from mercury.bus.sqlite_lock import WriteLock
from mercury.bus.wakeup import Row
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
# SQLite attaches at most ten files to a connection.
SHARDS = 8
# Up to so many records are appended by one statement, which needs no BEGIN and COMMIT, and takes
# a quarter less time than a statement for each.
STATEMENT_RECORDS = 64
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
CREATE TABLE IF NOT EXISTS {table} (
    offset INTEGER PRIMARY KEY, partition INTEGER NOT NULL, timestamp_us INTEGER NOT NULL,
    key BLOB NOT NULL, headers BLOB NOT NULL, value BLOB NOT NULL
)"""


def shard_of(topic_id: int) -> int:
    """The file that holds a topic's records."""
    return topic_id % SHARDS


def table_of(topic_id: int) -> str:
    """The name of the table of a topic's records."""
    return f"shard{shard_of(topic_id)}.topic_{topic_id}"


SCHEMAS = ("main", *(f"shard{shard}" for shard in range(SHARDS)))


def lock_of(schema: str) -> int:
    """Which part of the lock guards a file."""
    return SCHEMAS.index(schema)


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
                for schema in SCHEMAS:
                    pages = max_file_bytes // PAGE_SIZE
                    connection.execute(f"PRAGMA {schema}.max_page_count = {pages}")
            return connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise bus_error(error, self.path) from error
            raise
        finally:
            self.lock.release()

    def write(self, work: Callable[[], T], schema: str = "main") -> T:
        """Run `work`, which writes to one file, in a transaction.

        It is durable when this returns, or undone if it raises.
        """
        with self._locked(lock_of(schema)):
            # Not IMMEDIATE, which would lock all files: nobody else writes to ours while we hold
            # its lock.
            self.execute("BEGIN")
            result = work()
            self.execute("COMMIT")
            return result

    def append(self, topic_id: int, make: Callable[[], list[Row]]) -> tuple[int, list[Row]]:
        """Append records to a topic, durably; return the offset of the first, and the records.

        They are made under the lock, so that their time stamps grow with the offsets.
        """
        part = shard_of(topic_id) + 1
        self.lock.acquire(part)
        try:
            rows = make()
            whole = len(rows) <= STATEMENT_RECORDS
            if not whole:
                self.execute("BEGIN")
            for at in range(0, len(rows), STATEMENT_RECORDS):
                some = rows[at : at + STATEMENT_RECORDS]
                statement = _append_statement(topic_id, len(some))
                last = self.execute(statement, tuple(chain.from_iterable(some))).lastrowid
            if not whole:
                self.execute("COMMIT")
        except sqlite3.Error as error:
            self.rollback()
            raise bus_error(error, self.path) from error
        finally:
            self.lock.release(part)
        assert last is not None
        return int(last) - len(rows) + 1, rows

    @contextmanager
    def _locked(self, part: int) -> Iterator[None]:
        """Hold the lock of one file; what fails meanwhile is undone and told in our words."""
        self.lock.acquire(part)
        try:
            yield
        except BaseException as error:
            self.rollback()
            if isinstance(error, sqlite3.Error):
                raise bus_error(error, self.path) from error
            raise
        finally:
            self.lock.release(part)

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

    def create_topics(self, names: Iterable[str], partitions: int) -> None:
        """Make topics that do not exist yet."""

        with self._locked(0):
            known = dict(self.execute("SELECT name, id FROM topics"))
            missing = [name for name in names if name not in known]
            new = list(enumerate(missing, max(known.values(), default=0) + 1))
            # SQLite does not commit to two files at once: the table first, so that whoever
            # finds a topic in the catalogue also finds its records.
            for topic_id, _ in new:
                with self._locked(shard_of(topic_id) + 1):
                    self.execute(_TOPIC_TABLE.format(table=table_of(topic_id)))
            if new:
                self.execute("BEGIN")
                rows = [(topic_id, name, partitions) for topic_id, name in new]
                self.executemany("INSERT INTO topics (id, name, partitions) VALUES (?, ?, ?)", rows)
                self.change_registry()
                self.execute("COMMIT")


@lru_cache(4096)
def _append_statement(topic_id: int, count: int) -> str:
    rows = ", ".join(["(NULL, ?, ?, ?, ?, ?)"] * count)
    return f"INSERT INTO {table_of(topic_id)} VALUES {rows}"


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
    for schema in SCHEMAS:
        if schema != "main":
            connection.execute(f"ATTACH DATABASE ? AS {schema}", (f"{path}-{schema}",))
            connection.execute(f"PRAGMA {schema}.page_size = {PAGE_SIZE}")
            connection.execute(f"PRAGMA {schema}.journal_mode = WAL")
        connection.execute(f"PRAGMA {schema}.synchronous = NORMAL")
        connection.execute(f"PRAGMA {schema}.cache_size = -{CACHE_KIB}")
    if application_id != APPLICATION_ID:
        connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
    (version,) = connection.execute("SELECT schema_version FROM meta").fetchone()
    if version != SCHEMA_VERSION:
        raise BusCorruptError(
            f"the bus file {path} has version {version},"
            f" this Mercury reads version {SCHEMA_VERSION}"
        )
