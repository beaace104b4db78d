"""Reading everything that stands on the bus, before going on."""

from __future__ import annotations

from collections.abc import Iterator

from mercury.bus.api import Consumer, Record


def catch_up(consumer: Consumer, max_records: int = 512) -> Iterator[list[Record]]:
    """Yield what waits for the consumer, until nothing does.

    That a poll finds nothing proves nothing: a bus far away may be slower than its patience.
    """
    while (records := consumer.poll(max_records)) or consumer.lag():
        if records:
            yield records
