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


def _open_sqlite(path: str, retention: Retention, partitions: int) -> Bus:
    from mercury.bus.sqlite import SqliteBus

    return SqliteBus(path, retention=retention, partitions=partitions)


OPENERS: dict[str, Opener] = {"memory": _open_memory, "sqlite": _open_sqlite}


def open_bus(uri: str, *, retention: Retention = Retention(), partitions: int = 16) -> Bus:  # noqa: B008
    """Open `memory:`, `memory:NAME` (shared within the process) or `sqlite:PATH`."""
    scheme, colon, rest = uri.partition(":")
    opener = OPENERS.get(scheme)
    if not colon or opener is None:
        known = ", ".join(f"{name}:" for name in OPENERS)
        raise BusUnavailableError(f"no bus is known for {uri!r}; a bus URI starts with {known}")
    if partitions < 1:
        raise BusUnavailableError(f"a bus needs at least one partition, not {partitions}")
    return opener(rest, retention, partitions)
