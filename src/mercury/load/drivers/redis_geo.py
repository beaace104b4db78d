"""`redis://HOST:PORT`: the same work by Redis and its geographic indexes, for comparison.

Each topic has two indexes, of publications and of subscriptions. An update is a GEOADD and a
GEOSEARCH in the other index, in pipelines of which one is always on its way. Redis knows neither
filters nor a radius for each member: a publication's search takes the largest radius, and each
subscription's radius, filter and hysteresis are looked at here. Pairs are kept here as well,
so that enters and exits are the same as Mercury's.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mercury.load.counters import LoadCounters
from mercury.load.drivers.api import BACKLOG_ROWS, Batch, Clock, Say
from mercury.load.workload import Workload
from mercury.matching import MatchingRules
from mercury.model.errors import LoadError
from mercury.model.matching import EventReason, EventType

_PIPELINE_ROWS = 256
_STEP_S = 0.02

Rows = list[tuple[int, float, float, int]]  # entity, latitude, longitude, when it was due


class RedisDriver:
    """A thread sends the commands; updates are queued for it."""

    def __init__(self, host: str, port: int, database: int = 0) -> None:
        self.counters = LoadCounters(taken=0, dropped=0)
        self._address = f"redis://{host}:{port}/{database}"
        self._redis = redis.Redis(host, port, database, retry=Retry(NoBackoff(), 0))
        # The thread has a connection of its own and packs its commands itself: redis-py's packing
        # costs more than all that Redis does.
        make: Callable[..., Any] = redis.Connection
        self._connection = make(host=host, port=port, db=database)
        self._on_its_way: Rows = []
        self._clock: Clock = lambda: 0
        self._waiting: SimpleQueue[Batch | None] = SimpleQueue()  # None wakes the thread to end
        self._thread: threading.Thread | None = None
        self._ending = False
        self._pairs: list[set[int]] = []
        self._cpu_begun_s = 0.0

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Make room for the indexes, and learn what Redis cannot hold."""
        self._clock = clock
        rules = MatchingRules()
        doubt_m = math.hypot(workload.accuracy_m, workload.accuracy_m)
        radius_m = np.round(workload.radius_m, 1)
        slack_m = np.maximum(rules.hysteresis_m, np.minimum(doubt_m, radius_m))
        self._radius_m: list[float] = radius_m.tolist()
        self._reach_m: list[float] = (radius_m + slack_m).tolist()
        self._farthest_m = max(self._reach_m)
        self._publishes: list[bool] = workload.publishes.tolist()
        self._price: list[int] = workload.price.tolist()
        self._highest: list[float] = (
            workload.highest_price.tolist() if workload.has_filters else [math.inf] * len(workload)
        )
        prefix = f"mercury-{workload.settings.name}"
        self._keys = [
            (f"{prefix}:subscriptions:{topic}".encode(), f"{prefix}:publications:{topic}".encode())
            for topic in range(workload.settings.topics)
        ]
        self._topic: list[int] = workload.topic.tolist()
        self._pack_ahead(len(workload))
        self._inside = workload.settings.inside
        self._pairs = [set() for _ in range(len(workload))]
        try:
            await asyncio.to_thread(self._forget)
            self._cpu_begun_s = await asyncio.to_thread(self._cpu_s)
        except redis.RedisError as error:
            raise LoadError(f"cannot reach {self._address}: {error}") from None
        self._thread = threading.Thread(target=self._work, name="redis", daemon=True)
        self._thread.start()

    def send(self, batch: Batch) -> None:
        """Queue updates for the thread."""
        if self._ending or self._waiting_rows + len(batch) > BACKLOG_ROWS:
            self.counters.unsent += len(batch)
            if not self._ending:
                self.counters.note(
                    f"{BACKLOG_ROWS:,} updates waited for Redis; what came then was not sent"
                )
            return
        self.counters.sent += len(batch)
        self._waiting.put(batch)

    async def drain(self, timeout_s: float) -> None:
        """Wait until all updates are processed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._waiting_rows and not self._ending and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_STEP_S)

    async def close(self) -> None:
        """Remove the indexes."""
        if self._thread is not None:
            self._ending = True
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
            try:
                worked_s = await asyncio.to_thread(self._cpu_s) - self._cpu_begun_s
                if self.counters.taken:
                    # The driver may well be the slower of the two.
                    each_us = 1e6 * worked_s / self.counters.taken
                    self.counters.note(f"Redis itself worked {each_us:.1f} µs for each update")
                await asyncio.to_thread(self._forget)
            except redis.RedisError as error:
                self.counters.note(f"the indexes are left in Redis: {error}")
        self._redis.close()

    @property
    def _waiting_rows(self) -> int:
        """How many updates have no answer yet."""
        return self.counters.sent - (self.counters.taken or 0) - (self.counters.dropped or 0)

    def _cpu_s(self) -> float:
        """How long the server has worked since it started."""
        found: Any = self._redis.info("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    # In the thread

    def _forget(self) -> None:
        self._redis.delete(*(key for keys in self._keys for key in keys))

    def _work(self) -> None:
        try:
            self._connection.connect()
            while (batch := self._next()) is not None:
                for begin in range(0, len(batch), _PIPELINE_ROWS):
                    self._update(batch.some(slice(begin, begin + _PIPELINE_ROWS)))
                    if self._ending:
                        break
        except redis.RedisError as error:
            self.counters.note(f"Redis does not answer any more: {error}")
            self._ending = True
        finally:
            self._connection.disconnect()

    def _next(self) -> Batch | None:
        """The next queued updates; None at the end."""
        if self._waiting.empty():
            self._finish()  # no further pipeline, so wait for the answers now
        batch = self._waiting.get()
        return None if self._ending else batch

    def _pack_ahead(self, entities: int) -> None:
        """The parts of commands that stay the same."""
        self._name = [_bulk(b"%d" % entity) for entity in range(entities)]
        self._add, self._search, self._end = [], [], []
        for entity in range(entities):
            publishes = self._publishes[entity]
            keys = self._keys[self._topic[entity]]
            reach_m = self._farthest_m if publishes else self._reach_m[entity]
            self._add.append(b"*5\r\n" + _bulk(b"GEOADD", keys[publishes]))
            self._search.append(b"*9\r\n" + _bulk(b"GEOSEARCH", keys[not publishes], b"FROMLONLAT"))
            self._end.append(_bulk(b"BYRADIUS", b"%.1f" % reach_m, b"m", b"WITHDIST"))

    def _update(self, batch: Batch) -> None:
        """Send a pipeline, then look at the answers of the one before."""
        rows = list(zip(*(column.tolist() for column in batch[:4]), strict=True))
        parts: list[bytes] = []
        for entity, lat, lon, _ in rows:
            place = _bulk(b"%.7f" % lon, b"%.7f" % lat)
            parts += (self._add[entity], place, self._name[entity])
            parts += (self._search[entity], place, self._end[entity])
        self._connection.send_packed_command([b"".join(parts)])
        self._finish()
        self._on_its_way = rows

    def _answer(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            return error

    def _finish(self) -> None:
        rows, self._on_its_way = self._on_its_way, []
        answers = [self._answer() for _ in range(2 * len(rows))]
        now_us = self._clock()
        events: list[tuple[int, int]] = []
        taken = dropped = 0
        for (entity, _, _, time_us), added, found in zip(
            rows, answers[::2], answers[1::2], strict=True
        ):
            if isinstance(added, Exception) or isinstance(found, Exception):
                dropped += 1  # such as beyond 85 degrees, where its indexes end
                continue
            taken += 1
            self._judge(entity, found, time_us, events)
        self.counters.taken = (self.counters.taken or 0) + taken
        self.counters.dropped = (self.counters.dropped or 0) + dropped
        if events:
            event_types, times_us = np.array(events, np.int64).T
            reasons = np.full(len(events), EventReason.MOVED, np.uint8)
            self.counters.add(event_types.astype(np.uint8), reasons, times_us, now_us)

    def _judge(
        self, entity: int, found: list[Any], time_us: int, events: list[tuple[int, int]]
    ) -> None:
        """The pairs that an entity's update begins and ends."""
        publishes = self._publishes[entity]
        before, after = self._pairs[entity], set[int]()
        for member, distance in found:
            other = int(member)
            publication, subscription = (entity, other) if publishes else (other, entity)
            if self._price[publication] > self._highest[subscription]:
                continue
            distance_m = float(distance)
            limits = self._reach_m if other in before else self._radius_m
            if distance_m <= limits[subscription]:
                after.add(other)
        for other in after - before:
            events.append((EventType.ENTER, time_us))
            self._pairs[other].add(entity)
        for other in before - after:
            events.append((EventType.EXIT, time_us))
            self._pairs[other].discard(entity)
        if self._inside:
            events += [(EventType.INSIDE, time_us)] * len(after & before)
        self._pairs[entity] = after


def _bulk(*texts: bytes) -> bytes:
    """Parts of a command, as the protocol of Redis has them."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])
