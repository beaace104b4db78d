"""Keeps the bus small, off the hot path: checkpoints, finished files, retention.

A thread with a connection of its own: whatever syncs the disk takes milliseconds, and appends
never do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mercury.bus.api import Retention
from mercury.bus.embedded.catalogue import FILE_ERRORS, BusFile, explained
from mercury.bus.grouping import Registry, Topic
from mercury.model.errors import BusError

INTERVAL_S = 1.0
OPEN_LOGS = 32
RETENTION_INTERVAL_S = 10.0
# SQLite's log is copied into its file when it has grown to this. It holds offsets and members only.
CHECKPOINT_BYTES = 4 * 1024**2
# Topics of about the same size make room in turn, by so much.
SHARE_BYTES = 1024**2


class Upkeep:
    def __init__(self, path: Path, retention: Retention) -> None:
        self._file = BusFile(path, open_logs=OPEN_LOGS)
        self._retention = retention
        self._mutex = threading.RLock()  # one user of the files at a time
        self._stop = threading.Event()
        self._registry = Registry(version=-1)
        self._turn = 0
        self._next_retention = time.monotonic() + RETENTION_INTERVAL_S
        self._file.execute("PRAGMA busy_timeout = 0")
        self._thread = threading.Thread(target=self._run, name="mercury-bus-upkeep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._file.close()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self.step(time.monotonic(), time.time_ns() // 1000)

    def step(self, now: float, now_us: int) -> None:
        """Do what is due, by the uptime and by the clock that records are stamped with."""
        with self._mutex:
            with suppress(BusError, *FILE_ERRORS):
                self._checkpoint()
            with suppress(BusError, *FILE_ERRORS):
                for topic in self._some_topics():
                    self._file.log(topic).sync()
            if now >= self._next_retention:
                with suppress(BusError):
                    self.enforce(now_us)
                self._next_retention = now + RETENTION_INTERVAL_S

    def _checkpoint(self) -> None:
        if os.stat(f"{self._file.path}-wal").st_size < CHECKPOINT_BYTES:
            return
        # Most of it beside the others, and the rest, which must be little, under the lock.
        self._file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with self._file.lock.held():
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _some_topics(self) -> Iterator[Topic]:
        """A few topics, each time others."""
        topics = self._topics()
        for _ in range(min(OPEN_LOGS, len(topics))):
            self._turn += 1
            yield topics[self._turn % len(topics)]

    def _topics(self) -> tuple[Topic, ...]:
        self._registry = self._file.registry(self._registry)
        return self._registry.topics

    # Retention.

    def enforce(self, now_us: int) -> int:
        """Drop what is past the retention; return how many records went."""
        removed = 0
        with self._mutex, explained(self._file.path):
            topics = self._topics()
            if self._retention.max_age_s is not None:
                horizon_us = now_us - int(self._retention.max_age_s * 1e6)
                for topic in topics:
                    removed += self._remove(topic, self._file.log(topic).offset_at(horizon_us))
            if self._retention.max_bytes is not None:
                removed += self._trim(topics, self._retention.max_bytes)
        return removed

    def _trim(self, topics: tuple[Topic, ...], max_bytes: int) -> int:
        """Remove the oldest records of the largest topics, until the rest is small enough.

        So what there is much of, reports above all, makes room: never the few alerts.
        """
        removed = 0
        sizes = {topic: self._file.log(topic).kept_bytes() for topic in topics}
        while (excess := sum(sizes.values()) - max_bytes) > 0:
            largest = max(sizes, key=sizes.__getitem__)
            second = max((size for one, size in sizes.items() if one != largest), default=0)
            log = self._file.log(largest)
            wanted = min(excess, max(sizes[largest] - second, SHARE_BYTES))
            removed += self._remove(largest, log.offset_past(wanted))
            sizes[largest] = log.kept_bytes()
        return removed

    def _remove(self, topic: Topic, before: int) -> int:
        log = self._file.log(topic)
        if before <= log.state().oldest:
            return 0
        with self._file.lock.held(topic.id):
            return log.remove(before)
