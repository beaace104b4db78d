"""Keeps the bus file small, off the hot path: checkpoints and retention.

A thread with a connection of its own. Checkpoints sync the disk, which takes milliseconds;
appends never do.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from mercury.bus.api import Retention
from mercury.bus.grouping import Registry
from mercury.bus.sqlite_schema import (
    PAGE_SIZE,
    SCHEMAS,
    TOMBSTONE,
    BusFile,
    bus_error,
    lock_of,
    shard_of,
    table_of,
)
from mercury.model.errors import BusError

# The log is copied into the file every so many bytes written by this process …
CHECKPOINT_BYTES = 16 * 1024**2
# … and begun anew when it has grown to this: that needs a moment without writers.
RESTART_BYTES = 256 * 1024**2
# Who appends during a checkpoint may wait for the disk. So there is one every so many seconds at
# the most, unless several times as much has been written.
CALM_S = 10.0
HASTE = 2
QUIET_S = 1.0
RETENTION_EVERY_S = 10.0
CHUNK_RECORDS = 256
# Records of different topics closer together than this count as equally old.
SAME_AGE_US = 1_000_000


class Upkeep:
    """Checkpoints and retention of one bus file."""

    def __init__(self, path: Path, retention: Retention, lock_timeout_s: float) -> None:
        self._file = BusFile(path, lock_timeout_s=lock_timeout_s)
        self._retention = retention
        self._mutex = threading.Lock()  # one user of the connection at a time
        self._due = threading.Event()
        self._stopped = False
        self._written = 0  # bytes since the last checkpoint, as far as this process knows
        self._registry = Registry(version=-1)
        self._file.execute("PRAGMA busy_timeout = 0")
        self._thread = threading.Thread(target=self._run, name="mercury-bus-upkeep", daemon=True)
        self._thread.start()

    def wrote(self, size: int) -> None:
        """Count what was written, so that the log is checkpointed in time."""
        self._written += size
        if self._written >= HASTE * CHECKPOINT_BYTES and not self._due.is_set():
            self._due.set()

    def close(self) -> None:
        self._stopped = True
        self._due.set()
        self._thread.join()
        with self._mutex:
            self._file.close()

    # Checkpoints.

    def _run(self) -> None:
        next_retention = time.monotonic() + RETENTION_EVERY_S
        last = 0.0  # checkpoint
        before = -1  # `_written` at the last look
        truncated = False
        while not self._stopped:
            self._due.wait(QUIET_S)
            self._due.clear()
            if self._stopped:
                return
            quiet = self._written == before
            with suppress(BusError, sqlite3.Error):
                calm = time.monotonic() - last >= CALM_S
                if self._written >= CHECKPOINT_BYTES * (1 if calm else HASTE):
                    last = time.monotonic()
                    self._written = 0
                    self._checkpoint()
                elif quiet and not truncated:
                    self._truncate()
            truncated = quiet
            before = self._written
            if time.monotonic() >= next_retention:
                with suppress(BusError, sqlite3.Error):
                    self._enforce(gently=True)
                next_retention = time.monotonic() + RETENTION_EVERY_S

    def _checkpoint(self) -> None:
        with self._mutex:
            for schema in SCHEMAS:
                _, frames, _ = self._copy(schema)
                if frames * PAGE_SIZE < RESTART_BYTES:
                    continue
                # Catch up first, so that little is left to copy while the writers wait. When all
                # is copied, the next writer begins the log anew by itself.
                self._copy(schema)
                self._file.lock.acquire(lock_of(schema))
                try:
                    self._copy(schema)
                finally:
                    self._file.lock.release(lock_of(schema))

    def _copy(self, schema: str) -> tuple[int, int, int]:
        result: tuple[int, int, int] = self._file.execute(
            f"PRAGMA {schema}.wal_checkpoint(PASSIVE)"
        ).fetchone()
        return result

    def _truncate(self) -> None:
        """Give the logs' space back; only when nothing was written for a while."""
        for schema in SCHEMAS:
            suffix = "" if schema == "main" else f"-{schema}"
            with suppress(OSError):
                if os.stat(f"{self._file.path}{suffix}-wal").st_size < CHECKPOINT_BYTES:
                    continue
            with self._mutex:
                if self._copy(schema)[1] != self._copy(schema)[1]:
                    continue  # another process is busy
                self._file.lock.acquire(lock_of(schema))
                try:
                    self._file.execute(f"PRAGMA {schema}.wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    self._file.lock.release(lock_of(schema))

    # Retention.

    def enforce(self) -> int:
        return self._enforce(gently=False)

    def _enforce(self, *, gently: bool) -> int:
        removed = 0
        try:
            with self._mutex:
                self._registry = self._file.registry(self._registry)
            if self._retention.max_age_s is not None:
                horizon_us = time.time_ns() // 1000 - int(self._retention.max_age_s * 1e6)
                for topic in self._registry.topics:
                    removed += self._repeat(topic.id, horizon_us, gently)
            if self._retention.max_bytes is not None:
                removed += self._trim(self._retention.max_bytes, gently)
        except sqlite3.Error as error:
            raise bus_error(error, self._file.path) from error
        return removed

    def _repeat(self, topic_id: int, horizon_us: int, gently: bool) -> int:
        removed = 0
        while count := self._remove(topic_id, horizon_us, gently):
            removed += count
        return removed

    def _trim(self, max_bytes: int, gently: bool) -> int:
        removed = 0
        while (excess := self._used_bytes() - max_bytes) > 0:
            oldest = self._oldest()
            if not oldest:
                break
            first_us, topic_id = oldest[0]
            horizon_us = max(first_us + SAME_AGE_US, oldest[1][0] if len(oldest) > 1 else first_us)
            # Records take more room than their bytes: go half the way, and look again.
            removed += self._remove(topic_id, horizon_us + 1, gently, excess / 2)
        return removed

    def _used_bytes(self) -> int:
        with self._mutex:
            used = 0
            for schema in SCHEMAS:
                (pages,) = self._file.execute(f"PRAGMA {schema}.page_count").fetchone()
                (free,) = self._file.execute(f"PRAGMA {schema}.freelist_count").fetchone()
                used += pages - free
        return used * PAGE_SIZE

    def _oldest(self) -> list[tuple[int, int]]:
        """Time of the first record of each topic that has one, oldest first."""
        found = []
        with self._mutex:
            for topic in self._registry.topics:
                row = self._file.execute(
                    f"SELECT timestamp_us FROM {table_of(topic.id)} WHERE partition > {TOMBSTONE}"
                    " ORDER BY offset LIMIT 1"
                ).fetchone()
                if row is not None:
                    found.append((row[0], topic.id))
        return sorted(found)

    def _remove(
        self, topic_id: int, horizon_us: int, gently: bool, max_bytes: float = math.inf
    ) -> int:
        """Remove a chunk of the oldest records of a topic that are older than the horizon."""
        with self._mutex:
            begun = time.monotonic()
            if not self._removable(topic_id, horizon_us, max_bytes)[1]:
                return 0
            count = self._file.write(
                lambda: self._remove_chunk(topic_id, horizon_us, max_bytes),
                SCHEMAS[shard_of(topic_id) + 1],
            )
            took_s = time.monotonic() - begun
        self.wrote(count * PAGE_SIZE)
        if gently:
            time.sleep(took_s)  # the writers have the file at least half of the time
        return count

    def _removable(self, topic_id: int, horizon_us: int, max_bytes: float) -> tuple[int, int]:
        """The last offset to remove, and how many records go with it."""
        last = count = size = 0
        for offset, partition, timestamp_us, length in self._file.execute(
            "SELECT offset, partition, timestamp_us, length(key) + length(headers) + length(value)"
            f" FROM {table_of(topic_id)} ORDER BY offset LIMIT {CHUNK_RECORDS}"
        ).fetchall():
            if timestamp_us >= horizon_us or size >= max_bytes:
                break
            last = offset
            count += partition > TOMBSTONE
            size += length
        return last, count

    def _remove_chunk(self, topic_id: int, horizon_us: int, max_bytes: float) -> int:
        last, count = self._removable(topic_id, horizon_us, max_bytes)
        (newest,) = self._file.execute(f"SELECT max(offset) FROM {table_of(topic_id)}").fetchone()
        if last == newest:
            self._file.execute(
                f"UPDATE {table_of(topic_id)} SET partition = {TOMBSTONE}, key = x'',"
                " headers = x'', value = x'' WHERE offset = ?",
                (newest,),
            )
            last -= 1
        self._file.execute(f"DELETE FROM {table_of(topic_id)} WHERE offset <= ?", (last,))
        return count
