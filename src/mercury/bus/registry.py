"""Opens a bus by its URI."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from mercury.bus.api import Bus, Retention, Sync
from mercury.model.errors import BusUnavailableError


class _TemporaryFolder:
    """A folder in memory, where the system has one, deleted when its last user closes it."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        parent = memory if memory.is_dir() else None
        self.path = Path(tempfile.mkdtemp(prefix="mercury-bus-", dir=parent))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


_folder_of: weakref.WeakKeyDictionary[Bus, _TemporaryFolder] = weakref.WeakKeyDictionary()
_named_folders: weakref.WeakValueDictionary[str, _TemporaryFolder] = weakref.WeakValueDictionary()
_named_folders_lock = threading.Lock()


def _open_memory(name: str, retention: Retention, partitions: int, sync: Sync) -> Bus:
    from mercury.bus.embedded.bus import EmbeddedBus

    with _named_folders_lock:
        folder = _named_folders.get(name) if name else None
        if folder is None:
            folder = _TemporaryFolder()
            if name:
                _named_folders[name] = folder
    bus = EmbeddedBus(folder.path / "bus", retention=retention, partitions=partitions)
    _folder_of[bus] = folder
    return bus


def _open_embedded(path: str, retention: Retention, partitions: int, sync: Sync) -> Bus:
    from mercury.bus.embedded.bus import EmbeddedBus

    if not path:
        raise BusUnavailableError("embedded: lacks the path of its file: embedded:PATH")
    return EmbeddedBus(path, retention=retention, partitions=partitions, sync=sync)


def _open_kafka(rest: str, retention: Retention, partitions: int, sync: Sync) -> Bus:
    try:
        from mercury.bus.kafka.bus import KafkaBus
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise BusUnavailableError(
            "a kafka:// bus needs the package confluent-kafka: "
            "pip install 'mercury-messaging[kafka]'"
        ) from None
    return KafkaBus(rest, retention=retention, partitions=partitions)


# What opens a bus, and how many partitions a topic has unless said otherwise: on the embedded bus
# a partition costs nothing; in Kafka, each is a request of its own.
_BUSES: dict[str, tuple[Callable[[str, Retention, int, Sync], Bus], int]] = {
    "memory": (_open_memory, 16),
    "embedded": (_open_embedded, 16),
    "kafka": (_open_kafka, 4),
}


def open_bus(
    uri: str,
    *,
    retention: Retention = Retention(),  # noqa: B008
    partitions: int | None = None,
    sync: Sync = "process",
) -> Bus:
    """Open a bus; topics that it makes have this number of partitions.

    `sync` is for an embedded bus: what it acknowledges survives the death of every process
    ("process"), or a stop of the machine ("batch": many appends share a write to the disk;
    "always": each has its own).

    `memory:`, `memory:NAME` (shared within the process), `embedded:PATH` (shared by the processes
    of a machine) or `kafka://HOST:PORT[,HOST:PORT...][/PREFIX]`.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme not in _BUSES:
        known = ", ".join(f"{name}:" for name in _BUSES)
        raise BusUnavailableError(f"no bus is known for {uri!r}; a bus URI starts with {known}")
    opener, usual_partitions = _BUSES[scheme]
    if partitions is None:
        partitions = usual_partitions
    if partitions < 1:
        raise BusUnavailableError(f"a bus needs at least one partition, not {partitions}")
    return opener(rest, retention, partitions, sync)
