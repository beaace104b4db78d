"""The embedded bus: an SQLite file and its records, which any number of processes share.

Appends survive the death of the process; a datagram wakes the readers, with the records
themselves if these are small. After `fork`, open a bus of your own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar, cast

from mercury.bus.api import Retention, Start, Sync
from mercury.bus.buffering import Batch
from mercury.bus.embedded.assignment import Commits
from mercury.bus.embedded.catalogue import BusFile, bus_error, explained
from mercury.bus.embedded.consumer import EmbeddedConsumer
from mercury.bus.embedded.disk_sync import DiskSync
from mercury.bus.embedded.group_commit import GroupCommit
from mercury.bus.embedded.record_frame import Entry
from mercury.bus.embedded.upkeep import Upkeep
from mercury.bus.embedded.wake_up import Waker, WakeUp
from mercury.bus.grouping import RegisteredConsumer, Registry, check_patterns, named_topics
from mercury.bus.headers import encode_headers
from mercury.model.errors import BusError

T = TypeVar("T")


class EmbeddedBus(GroupCommit):
    """One connection to a bus file."""

    def __init__(
        self,
        path: str | Path,
        *,
        retention: Retention,
        partitions: int = 16,
        sync: Sync = "process",
    ) -> None:
        self.path = Path(path).absolute()
        super().__init__(f"the bus file {self.path}")
        self._partitions = partitions
        self._registry = Registry(version=-1)
        self._spread = itertools.count()  # partitions for records without a key
        self._consumers: set[EmbeddedConsumer] = set()
        self._file = BusFile(self.path, sync)
        try:
            self._upkeep = Upkeep(self.path, retention)
        except BaseException:
            self._file.close()
            raise
        self._waker = Waker()
        if sync == "batch":
            self._disk = DiskSync()

    # Writing.

    _pack_headers = staticmethod(encode_headers)

    def write(self, work: Callable[[], T]) -> T:
        """Run `work` in a transaction of the main file."""
        with self.mutex:
            try:
                return self._file.write(work)
            except BaseException:
                self._registry = Registry(version=-1)  # may have seen what was undone
                raise

    def refreshed(self) -> Registry:
        """The registry as of the running transaction."""
        self._registry = self._file.registry(self._registry)
        return self._registry

    def _explain(self, error: OSError) -> BusError:
        return bus_error(error, self.path)

    def _write(self, batch: Batch) -> None:
        registry = self.refreshed()
        if not batch.keys() <= registry.by_name.keys():
            self._file.create_topics(batch, self._partitions)
            registry = self.refreshed()
        for name in list(batch):
            topic = registry.by_name[name]
            entries = cast("list[Entry]", batch[name])
            frame = self._file.append(topic, entries, self._spread)
            del batch[name]
            if self._disk is not None:
                self._disk.written(self._file.log(topic).newest_file())
            # Who subscribed meanwhile has announced it before looking for records, and was not
            # in the audience when we began.
            registry = self.refreshed()
            self._wake_up(registry.audience(name), WakeUp(registry.version, topic.id, frame))

    def _write_commits(self, committing: Mapping[EmbeddedConsumer, Commits | None]) -> None:
        def write_each() -> None:
            registry = self.refreshed()
            for consumer, limit in committing.items():
                self.write_commits(consumer, registry, limit)

        try:
            self.write(write_each)
        except BaseException:
            for consumer in committing:
                consumer.assignment.invalidate()
            raise
        for consumer, limit in committing.items():
            consumer.assignment.drop_pending(limit)

    def write_commits(
        self, consumer: EmbeddedConsumer, registry: Registry, limit: Commits | None = None
    ) -> None:
        """Move the group's offsets, only in partitions that are the consumer's as of now."""
        consumer.follow(registry)
        rows = [(consumer.group, *row) for row in consumer.assignment.pending_up_to(limit)]
        self._file.executemany(
            "INSERT INTO committed VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET offset = max(offset, excluded.offset)",
            rows,
        )

    # Waking others.

    def _wake_up(self, listeners: Sequence[RegisteredConsumer], datagram: WakeUp) -> None:
        wake_up = self._waker.wake_up
        self._remove_listeners([one for one in listeners if not wake_up(one, datagram)])

    def wake_up_group(self, group: str) -> None:
        """Tell the members of a group that their assignment has changed."""
        with self.mutex:
            self._wake_up(self._registry.members(group), WakeUp(self._registry.version))

    def _remove_listeners(self, gone: Sequence[RegisteredConsumer]) -> None:
        """Unregister listeners whose process died; their partitions go to the others at once."""
        if not gone:
            return

        try:
            self.write(lambda: self._delete_listeners([one.id for one in gone]))
        except BusError:
            return  # the records are safe; whoever comes next removes the dead
        for group in {one.group for one in gone if one.group is not None}:
            self.wake_up_group(group)

    def _delete_listeners(self, ids: Sequence[str]) -> None:
        self._file.executemany("DELETE FROM listeners WHERE id = ?", [(one,) for one in ids])
        self._file.change_listeners()
        self.refreshed()

    # Members.

    def renew(self, consumer: EmbeddedConsumer, now_us: int, lease_us: int) -> None:
        """Renew a lease, and remove listeners whose lease ran out."""

        def beat() -> set[str]:
            self._file.execute(
                "UPDATE listeners SET seen_us = ? WHERE id = ?", (now_us, consumer.id)
            )
            self._file.announce_registry()  # whoever announced last may have died before its commit
            # The clock counts from the start of the machine: a time to come is from before that.
            rows = self._file.execute(
                "SELECT id FROM listeners WHERE seen_us NOT BETWEEN ? AND ?",
                (now_us - lease_us, now_us + lease_us),
            )
            return {listener_id for (listener_id,) in rows}

        with self.mutex:
            lapsed = self.write(beat)
            # Look at the tables now and then even if nobody announced a change: somebody may
            # have removed the lock file, and the number in it.
            self._registry = self._file.registry(self._registry, look=True)
            group, alive = consumer.group, self._waker.alive
            self._remove_listeners(
                [
                    one
                    for one in self._registry.listeners
                    if one.id in lapsed
                    or (group is not None and one.group == group and not alive(one))
                ]
            )

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """Write what is waiting and the consumer's commits, and hand its partitions over."""

        def go() -> None:
            self.write_commits(consumer, self.refreshed())
            self._delete_listeners([consumer.id])

        with self.mutex:
            self._consumers.discard(consumer)
            self._committing.discard(consumer)
            self._flush()  # before the commits
            self.write(go)
            consumer.assignment.pending_commits.clear()
            if consumer.group is not None:
                self.wake_up_group(consumer.group)

    # The rest of the interface.

    def subscribe(
        self, topics: Sequence[str], *, group: str | None = None, start: Start = "latest"
    ) -> EmbeddedConsumer:
        with self.mutex:
            self.flush_now()  # what was appended before is not "after"
            patterns = check_patterns(topics)
            named = named_topics(patterns)
            if not self.refreshed().by_name.keys() >= set(named):
                self._file.create_topics(named, self._partitions)
            consumer = EmbeddedConsumer(self, self._file, patterns, group, start)
            self._consumers.add(consumer)
            return consumer

    def trouble(self) -> str:
        return ""  # nothing stands between readers and the files

    def topics(self) -> list[str]:
        with self.mutex, explained(self.path):
            self.check_open()
            return [topic.name for topic in self.refreshed().topics]

    def close(self) -> None:
        try:
            self._close()
        finally:
            if self._disk is not None:
                self._disk.close()  # without the mutex, which its thread may wait for

    def _close(self) -> None:
        with self.mutex:
            if self.closed:
                return
            with ExitStack() as closing:  # each step runs, whatever fails before it
                closing.callback(self._waker.close)
                closing.callback(self._file.close)
                closing.callback(self._upkeep.close)
                closing.callback(self._finish)
                for consumer in self._consumers:
                    closing.callback(consumer.close)
                try:
                    self._flush()
                except BusError as error:
                    lost = f"records that are lost with that: {self._batch_records}"
                    raise type(error)(f"{error}; {lost}") from error
