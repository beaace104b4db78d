"""The health of a service: it is given what happens, and reports what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

BEHIND_S = 5.0  # a consumer that far behind is too late for alerts
IDLE_S = 1.0  # a consumer that waited longer than this for records has read all there were
STALL_S = 1.0
UNACKNOWLEDGED_S = 5.0
RECENT_S = 10.0  # a failure counts for this time, so that probes at intervals see it
BACKLOG_RECORDS = 10_000
BACKLOG_S = 60.0


@dataclass(slots=True)
class _Reader:
    """A consumer: waiting for records, or processing some of a certain age."""

    since: float  # when it began to wait or work
    waits: bool = True
    age_s: float = 0.0  # of the newest records it took, when it took them

    def behind_s(self, now: float) -> float:
        if not self.waits:
            return self.age_s + now - self.since
        return 0.0 if now - self.since > IDLE_S else self.age_s


class Health:
    """The health of a running service."""

    def __init__(self) -> None:
        self._readers: dict[object, _Reader] = {}
        self._backlogs: dict[str, float] = {}  # since when each is too large
        self._flushes_since: float | None = None
        self._failed_at = float("-inf")
        self._failure = ""

    def waits(self, consumer: object, now: float) -> None:
        """A consumer starts to wait for records."""
        reader = self._readers.setdefault(consumer, _Reader(now))
        reader.since, reader.waits = now, True

    def took(self, consumer: object, now: float, age_s: float) -> None:
        """It got records; the newest were on the bus for `age_s`."""
        reader = self._readers.setdefault(consumer, _Reader(now))
        reader.since, reader.waits, reader.age_s = now, False, max(0.0, age_s)

    def backlog(self, name: str, now: float, records: int) -> None:
        """The records that wait for a job that reads in batches."""
        if records < BACKLOG_RECORDS:
            self._backlogs.pop(name, None)
        else:
            self._backlogs.setdefault(name, now)

    def flushing(self, now: float) -> None:
        """The bus was asked to make everything durable."""
        self._flushes_since = now

    def flushed(self) -> None:
        self._flushes_since = None

    def bus_failed(self, now: float, error: object) -> None:
        """An append failed."""
        self._flushes_since = None
        self._failed_at, self._failure = now, str(error)

    def bus_fails(self, now: float) -> bool:
        return now - self._failed_at < RECENT_S

    def behind_s(self, now: float) -> float:
        """How far the slowest consumer is behind the bus."""
        return max((one.behind_s(now) for one in self._readers.values()), default=0.0)

    def problem(self, now: float, stall_s: float = 0.0) -> str:
        """One sentence on the problem; empty if there is none."""
        if self.bus_fails(now):
            return f"the bus does not take what is appended: {self._failure}"
        if self._flushes_since is not None and now - self._flushes_since > UNACKNOWLEDGED_S:
            waited_s = now - self._flushes_since
            return f"the bus has not acknowledged what was appended for {waited_s:.0f} s"
        if stall_s > STALL_S:
            return f"the event loop stood still for {stall_s:.1f} s"
        if (behind_s := self.behind_s(now)) > BEHIND_S:
            return f"it is {behind_s:.0f} s behind what is on the bus"
        for name, since in self._backlogs.items():
            if now - since > BACKLOG_S:
                more = f"more than {BACKLOG_RECORDS:,} records"
                return f"{name} has had {more} waiting for {now - since:.0f} s"
        return ""
