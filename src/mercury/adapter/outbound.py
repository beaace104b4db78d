"""The queue of packets to clients: higher priority first, sent without blocking the loop."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

import numpy as np

from mercury.adapter.mediator import FanOut, Single
from mercury.net import UdpEndpoint
from mercury.session import AdapterSessions

PRIORITIES = 10


class Outbound:
    """A queue per priority, served in ticks of at most `chunk` packets.

    Between ticks the loop serves all other work, so the largest fan-out delays a report by no
    more than one chunk, and an emergency overtakes a fan-out of lower priority in the middle.
    """

    def __init__(
        self,
        endpoint: UdpEndpoint,
        sessions: AdapterSessions,
        *,
        now: Callable[[], float],
        now_us: Callable[[], int],
        chunk: int = 512,
        max_waiting: int = 2_000_000,
    ) -> None:
        self.packets_sent = 0
        self.dropped: Counter[str] = Counter()
        self.waiting = 0  # packets queued, over all priorities
        self.endpoint = endpoint
        self._sessions = sessions
        self._now = now
        self._now_us = now_us
        self._chunk = chunk
        self.max_waiting = max_waiting
        self._queues: list[deque[FanOut | Single]] = [deque() for _ in range(PRIORITIES)]
        self._scheduled = False
        self._loop = asyncio.get_running_loop()

    def put(self, packet: bytes, address: bytes, priority: int, expires_us: int = 0) -> None:
        """Queue one packet; `kick` sends it."""
        if self._make_room(1, priority):
            self._queues[priority].append((packet, address, priority, expires_us))
            self.waiting += 1

    def put_fan_out(self, job: FanOut) -> None:
        """Queue one body for many clients; `kick` begins to send it."""
        if not len(job.slots):
            return
        if self._make_room(len(job.slots), job.priority):
            self._queues[job.priority].append(job)
            self.waiting += len(job.slots)
        else:
            job.report(0, len(job.slots), None, self._now())

    def kick(self) -> None:
        """Serve the queues now, unless a tick is already due."""
        if self.waiting and not self._scheduled:
            self._tick()

    async def drained(self, timeout_s: float) -> None:
        """Wait until everything is sent, or the timeout is over."""
        deadline = self._loop.time() + timeout_s
        while self.waiting and self._loop.time() < deadline:
            self.kick()
            await asyncio.sleep(0.001)

    def _tick(self) -> None:
        self._scheduled = False
        budget, full = self._chunk, False
        now_us = self._now_us()
        for priority in range(PRIORITIES - 1, -1, -1):
            queue = self._queues[priority]
            while queue and budget > 0 and not full:
                head = queue[0]
                if isinstance(head, tuple):
                    handled, full = self._send_singles(queue, budget, now_us)
                else:
                    handled, full = self._send_part(head, budget, now_us)
                    if head.done >= len(head.slots):
                        queue.popleft()
                budget -= handled
            if full or budget <= 0:
                break
        if self.waiting:
            self._scheduled = True
            if full:
                self.endpoint.when_writable(self._tick)
            else:
                self._loop.call_soon(self._tick)

    def _send_singles(
        self, queue: deque[FanOut | Single], budget: int, now_us: int
    ) -> tuple[int, bool]:
        batch: list[Single] = []
        taken = 0
        while queue and taken < budget:
            item = queue[0]
            if not isinstance(item, tuple):
                break
            queue.popleft()
            taken += 1
            if 0 < item[3] <= now_us:
                self.dropped["expired"] += 1
            else:
                batch.append(item)
        handled = self.endpoint.try_send([(packet, address) for packet, address, _, _ in batch])
        self.packets_sent += handled
        queue.extendleft(reversed(batch[handled:]))
        left = len(batch) - handled
        self.waiting -= taken - left
        return taken - left, left > 0

    def _send_part(self, job: FanOut, budget: int, now_us: int) -> tuple[int, bool]:
        slots = job.slots[job.done : job.done + budget]
        if 0 < job.expires_us <= now_us:
            left = len(job.slots) - job.done
            self.dropped["expired"] += left
            self.waiting -= left
            job.report(job.done, len(job.slots), None, self._now())
            job.done = len(job.slots)
            return 0, False
        table = self._sessions.table
        # A session may have ended, and its slot may be another client's, since the job was made.
        generations = job.generations[job.done : job.done + budget]
        alive = table.active[slots] & (table.generation[slots] == generations)
        live_slots = slots[alive]
        now = self._now()
        heads = table.stamp(live_slots, job.kind, job.priority, len(job.body), now, job.flags)
        handled = self.endpoint.try_send_shared(
            heads, job.body, table.address[live_slots], table.address_length[live_slots]
        )
        self.packets_sent += handled
        job.sent += handled
        full = handled < len(live_slots)
        # Where the socket was full, go on at the first client that was not served.
        advanced = int(np.flatnonzero(alive)[handled]) if full else len(slots)
        job.report(job.done, job.done + advanced, alive[:advanced], now)
        job.done += advanced
        self.waiting -= advanced
        return advanced, full

    def _make_room(self, wanted: int, priority: int) -> bool:
        if self.waiting + wanted <= self.max_waiting:
            return True
        # Drop the least urgent first, but nothing for a packet that can never fit.
        for queue in self._queues[:priority] if wanted <= self.max_waiting else ():
            while queue and self.waiting + wanted > self.max_waiting:
                item = queue.pop()
                if isinstance(item, tuple):
                    size = 1
                else:
                    size = len(item.slots) - item.done
                    item.report(item.done, len(item.slots), None, self._now())
                self.waiting -= size
                self.dropped["shed"] += size
        if self.waiting + wanted <= self.max_waiting:
            return True
        self.dropped["shed"] += wanted
        return False
