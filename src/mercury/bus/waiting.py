"""What the consumers of every bus share: waiting for records in an event loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

from mercury.bus.api import Record
from mercury.bus.event_loop import call_in


class WaitingConsumer(ABC):
    """Implements `read`; subclasses fetch records, and call `wake` when some came."""

    def __init__(self) -> None:
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that reads
        self._waiting: set[asyncio.Future[None]] = set()
        self._has_woken = False  # `wake` was called since a read last looked
        self._assignments: dict[tuple[str, int], int] = {}  # when records were last handed out

    @abstractmethod
    def _may_have_records(self) -> bool:
        """Whether there may be records."""

    @abstractmethod
    def _take(self, max_records: int) -> list[Record]:
        """Return records that are here."""

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def assignments(self) -> Mapping[tuple[str, int], int]:
        return self._assignments

    async def read(self, max_records: int = 512, timeout_s: float | None = None) -> list[Record]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop and not self.closed:
            self._move_to(loop)
        if self._may_have_records():
            # Let the loop run, to flush what a reader that is always behind appends.
            await asyncio.sleep(0)
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not self.closed:
            self._has_woken = False
            if self._may_have_records() and (records := self._take(max_records)):
                return records
            if deadline is not None and loop.time() >= deadline:
                break
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting.add(woken)
            timer = None if deadline is None else loop.call_at(deadline, _wake, woken)
            try:
                if not self._has_woken:  # else records came between the check and the wait
                    await woken
            finally:
                self._waiting.discard(woken)
                if timer is not None:
                    timer.cancel()
        return []

    def wake(self) -> None:
        """Wake waiting reads; from any thread."""
        self._has_woken = True
        if self._waiting and self._loop is not None:
            call_in(self._loop, self._wake_waiting)

    def _wake_waiting(self) -> None:
        for woken in tuple(self._waiting):
            _wake(woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
