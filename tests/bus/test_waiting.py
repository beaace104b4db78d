"""Waiting for records in an event loop: nothing that comes meanwhile is overlooked."""

from __future__ import annotations

import asyncio
import threading

from live import iterate

from mercury.bus import Record
from mercury.bus.waiting import WaitingConsumer

WAIT_S = 10.0
RECORD = Record("t", 0, 1, 0, b"", (), b"v")


class Arrivals(WaitingConsumer):
    """Records that come from another thread, at the worst moment: just after nothing was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.looked = 0

    def _may_have_records(self) -> bool:
        seen = bool(self.records)
        self.looked += 1
        if self.looked == 2:  # the first look is before the loop gets its chance
            thread = threading.Thread(target=self._arrive)
            thread.start()
            thread.join()
        return seen

    def _arrive(self) -> None:
        self.records.append(RECORD)
        self.wake()

    def _take(self, max_records: int) -> list[Record]:
        taken, self.records = self.records, []
        return taken


def test_what_comes_between_looking_and_waiting_is_not_overlooked() -> None:
    async def scenario() -> None:
        consumer = Arrivals()
        assert await asyncio.wait_for(consumer.read(), WAIT_S) == [RECORD]
        assert not consumer._waiting

    asyncio.run(scenario())


def test_a_wake_up_without_records_waits_on() -> None:
    async def scenario() -> None:
        consumer = Arrivals()
        consumer.looked = 10
        reading = asyncio.create_task(consumer.read())
        for _ in range(3):
            await iterate()
            consumer.wake()
        assert not reading.done()
        await asyncio.to_thread(consumer._arrive)
        assert await asyncio.wait_for(reading, WAIT_S) == [RECORD]

    asyncio.run(scenario())
