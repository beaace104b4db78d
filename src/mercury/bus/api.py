"""What a bus is: ordered, durable, replayable topics with consumer groups.

The interface is the common ground of the embedded bus and Kafka. A topic has partitions; the
key picks the partition, so records of one key stay in order. Offsets grow within a topic and
partition but need not be dense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """One record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    key: bytes
    headers: Headers
    value: bytes


@dataclass(frozen=True, slots=True)
class FromTime:
    """Start at the first record appended at or after this time (microseconds since the epoch)."""

    timestamp_us: int


Start = Literal["earliest", "latest"] | FromTime
# What an acknowledged record of the embedded bus survives: the death of every process; with
# "batch" and "always" a stop of the machine, too. Kafka has settings of its own.
Sync = Literal["process", "batch", "always"]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept; None keeps them for ever."""

    max_age_s: float | None = 24 * 3600.0
    max_bytes: int | None = 4 * 1024**3


class Consumer(Protocol):
    """Reads one or more topics, alone or as a member of a group."""

    def poll(self, max_records: int = 512) -> list[Record]:
        """Return what is there now, without waiting for more."""

    async def read_now(self, max_records: int = 512) -> list[Record]:
        """Return what is there now, as `poll` does, without blocking the loop on a remote bus."""

    async def read(self, max_records: int = 512, timeout_s: float | None = None) -> list[Record]:
        """Wait for records; an empty list means that `timeout_s` passed or the consumer closed."""

    def commit(self) -> None:
        """Commit the offsets of everything returned so far, for the group.

        Takes effect with the next explicit flush, or by itself within moments, and always
        after the records appended before it: what was produced from a record is durable no later
        than the commit that says it was consumed.
        """

    def assignments(self) -> Mapping[tuple[str, int], int]:
        """The partitions this consumer had when it last returned records.

        Each topic and partition has an assignment epoch: it is the same while reading goes on
        without a break, and another after a different member may have read the partition. State
        for a partition must be kept under that number.
        """

    def lag(self) -> int:
        """How many records of the consumer's partitions are waiting."""

    def close(self) -> None:
        """Leave the group at once, so that others take over; stop waiting reads; never fail."""


def catch_up(consumer: Consumer, max_records: int = 512) -> Iterator[list[Record]]:
    """Yield what waits for the consumer, until nothing does.

    An empty poll alone is no proof: a remote bus may be slower than the timeout.
    """
    while (records := consumer.poll(max_records)) or consumer.lag():
        if records:
            yield records


class Bus(Protocol):
    """One connection of one process to the bus."""

    def append(self, topic: str, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Buffer a record; it is appended with the next flush.

        Inside a running event loop a flush happens by itself at the next event-loop iteration.
        """

    def flush_now(self) -> None:
        """Make everything appended and committed so far durable, blocking."""

    async def flush(self) -> None:
        """Return when everything appended and committed so far is durable (acknowledged)."""

    def subscribe(
        self, topics: Sequence[str], *, group: str | None = None, start: Start = "latest"
    ) -> Consumer:
        """Open a consumer.

        Topics listed first are served first. A name ending in `.*` follows every topic with
        that prefix, also those created later. With a group, partitions are assigned to its
        members and reading goes on at the group's committed offset; `start` then says where a
        group begins that has committed nothing. Without a group every record is read.
        """

    def trouble(self) -> str:
        """One sentence on what a restart might heal, as a reader that stands still; or empty."""

    def topics(self) -> list[str]:
        """Names of all topics that records were appended to or that a consumer named."""

    def close(self) -> None:
        """Flush and close; raise if records are lost."""
