"""Opens a bus by its URI."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from mercury.bus.api import Bus, Retention
from mercury.bus.memory import MemoryBus, MemoryLog
from mercury.model.errors import BusUnavailableError

Opener = Callable[[str, Retention, int], Bus]

# Named logs live as long as somebody holds a connection to them.
_named_logs: weakref.WeakValueDictionary[str, MemoryLog] = weakref.WeakValueDictionary()
_named_logs_lock = threading.Lock()


def _open_memory(name: str, retention: Retention, partitions: int) -> Bus:
    if not name:
        return MemoryBus(retention=retention, partitions=partitions)
    with _named_logs_lock:
        log = _named_logs.get(name)
        if log is None:
            log = _named_logs[name] = MemoryLog()
    return MemoryBus(log, retention=retention, partitions=partitions)


def _open_embedded(path: str, retention: Retention, partitions: int) -> Bus:
    from mercury.bus.embedded.bus import EmbeddedBus

    return EmbeddedBus(path, retention=retention, partitions=partitions)


def _open_kafka(rest: str, retention: Retention, partitions: int) -> Bus:
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


OPENERS: dict[str, Opener] = {
    "memory": _open_memory,
    "embedded": _open_embedded,
    "kafka": _open_kafka,
}
# In the embedded buses a partition costs nothing; in Kafka, each is a request of its own.
PARTITIONS = {"memory": 16, "embedded": 16, "kafka": 4}


def open_bus(
    uri: str,
    *,
    retention: Retention = Retention(),  # noqa: B008
    partitions: int | None = None,
) -> Bus:
    """Open a bus; topics that it makes have so many partitions.

    `memory:`, `memory:NAME` (shared within the process), `embedded:PATH` (shared by the processes
    of a machine) or `kafka://HOST:PORT[,HOST:PORT...][/PREFIX]`.
    """
    scheme, colon, rest = uri.partition(":")
    opener = OPENERS.get(scheme)
    if not colon or opener is None:
        known = ", ".join(f"{name}:" for name in OPENERS)
        raise BusUnavailableError(f"no bus is known for {uri!r}; a bus URI starts with {known}")
    if partitions is None:
        partitions = PARTITIONS[scheme]
    if partitions < 1:
        raise BusUnavailableError(f"a bus needs at least one partition, not {partitions}")
    return opener(rest, retention, partitions)
