"""The matcher, alone or one of many workers, with its gateway.

Alone, it runs one engine between `entities` and `matches`; workers divide the stages among them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import Counter
from collections.abc import Mapping

from mercury.bus import Bus, Consumer, FromTime, Record
from mercury.config import GatewaySettings, MatcherSettings
from mercury.matcher.bus_listener import BusListener
from mercury.matcher.front import Front
from mercury.matcher.gateway.server import Gateway
from mercury.matcher.hub import Hub
from mercury.matcher.shared.lanes import Lanes
from mercury.matcher.shared.meetings import Meetings
from mercury.matcher.shared.roster import Roster
from mercury.matcher.shared.runner import StageRunner
from mercury.matcher.shared.stage import StageNumber
from mercury.matcher.shared.state_log import StateLog
from mercury.matching import MatchingRules, warm_up
from mercury.model import topics
from mercury.model.errors import BusFullError
from mercury.model.message import Address
from mercury.service import Service, Statistics, now_us
from mercury.wire.records import Headers

log = logging.getLogger(__name__)

_BATCH = 512
_PROGRESS_S = 1.0
_FORGET_S = 30.0
_NOTIFIED = "notified"
_TIME = struct.Struct("<q")


def rules_of(settings: MatcherSettings) -> MatchingRules:
    """The matching rules of these settings."""
    return MatchingRules(
        overlap=settings.overlap,
        hysteresis_m=settings.hysteresis_m,
        ttl_s=settings.ttl_s,
        max_radius_m=settings.max_radius_m,
        max_publication_radius_m=settings.max_publication_radius_m,
        topics=None if settings.topics is None else frozenset(settings.topics),
    )


class _GatewayService(Service):
    """The base of both kinds of matcher: settings, and perhaps a gateway."""

    part = "matcher"
    gateway: Gateway | None = None

    def __init__(self, bus: Bus, settings: MatcherSettings) -> None:
        super().__init__(bus, Address.service(settings.id), metrics=settings.metrics)
        self.settings = settings

    def _gateway_statistics(self) -> Statistics:
        return Statistics() if self.gateway is None else self.gateway.statistics()

    async def _open_gateway(self) -> None:
        if self.gateway is not None:
            await self.gateway.start()
            log.info("the gateway is open at port %d", self.gateway.port)


class Matcher(_GatewayService):
    """A matcher with one engine.

    After a restart it reads the declarations of the last moments from the bus again, and notifies
    no subscriber twice.
    """

    def __init__(
        self, bus: Bus, settings: MatcherSettings, gateway: GatewaySettings | None = None
    ) -> None:
        super().__init__(bus, settings)
        self.hub = Hub(rules_of(settings))
        self.gateway = None if gateway is None else Gateway(self.hub, gateway, self.condition)
        self.listener = BusListener(self.hub, self._append)
        self.dropped: Counter[str] = Counter()
        self._moving: Consumer | None = None
        self._notified_us = 0  # time of the newest record whose events were all sent

    def statistics(self) -> Statistics:
        hub = self.hub.statistics()
        gateway = self._gateway_statistics()
        listener = self.listener
        dropped = self.dropped.copy()
        for one in (hub.dropped, gateway.dropped, listener.dropped):
            dropped.update(one)
        return Statistics(
            gauges={**gateway.gauges, **hub.gauges},
            counters={
                **gateway.counters,
                **hub.counters,
                **listener.counters,
                "cpu_s": time.process_time(),
            },
            dropped=dropped,
        )

    async def _start(self) -> None:
        await asyncio.to_thread(warm_up)
        await self._catch_up()
        await self._open_gateway()
        self.spawn(self._serve())
        self.spawn(self.hub.run())
        self.spawn(self._keep_house())

    async def _stop(self) -> None:
        if self.gateway is not None:
            await self.gateway.stop()
        if self._moving is not None:
            self._moving.close()
            self.hub.flush()
            self._store_progress()

    async def _catch_up(self) -> None:
        """Restore declarations and positions from the bus, without notifying twice."""
        lookback_us = int((self.settings.ttl_s + 5.0) * 1e6)
        notified_us = await self._last_notified_us(lookback_us)
        self._moving = self.bus.subscribe(
            (topics.ENTITIES,), start=FromTime(now_us() - lookback_us)
        )
        self.listener.silent = notified_us > 0
        while records := await self._moving.read_now(_BATCH):
            self._take(records, notified_us)
        self._end_silence()
        self.hub.flush()

    async def _last_notified_us(self, lookback_us: int) -> int:
        notified_us = await self._notified_since(topics.MATCHER_STATES, now_us() - lookback_us)
        if notified_us:
            later_us = await self._notified_since(topics.MATCHES, notified_us)
            notified_us = max(notified_us, later_us)
        return notified_us

    async def _notified_since(self, topic: str, since_us: int) -> int:
        """The newest time in the headers of a topic's records, 0 without any."""
        consumer = self.bus.subscribe((topic,), start=FromTime(since_us))
        newest_us = 0
        try:
            while records := await consumer.read_now(_BATCH):
                newest_us = max(newest_us, *map(_notified_in, records))
        finally:
            consumer.close()
        return newest_us

    async def _serve(self) -> None:
        assert self._moving is not None
        while True:
            self._take(await self.read(self._moving, _BATCH), 0)

    def _take(self, records: list[Record], silent_until_us: int) -> None:
        for record in records:
            if record.timestamp_us > silent_until_us:
                self._end_silence()
            self._notified_us = max(self._notified_us, record.timestamp_us)
            self.listener.take(record)

    def _end_silence(self) -> None:
        if self.listener.silent:
            self.hub.flush()
            self.listener.silent = False

    def _append(self, key: bytes, value: bytes) -> None:
        try:
            self.bus.append(topics.MATCHES, value, key, self._notified())
        except BusFullError as error:
            self.bus_failed(error)
            self.dropped["bus-full"] += 1

    def _store_progress(self) -> None:
        self.bus.append(topics.MATCHER_STATES, b"", self.settings.id.encode(), self._notified())

    def _notified(self) -> Headers:
        return ((_NOTIFIED, _TIME.pack(self._notified_us)),)

    async def _keep_house(self) -> None:
        stored_us = forgotten_at = 0.0
        while True:
            await asyncio.sleep(_PROGRESS_S)
            if self._notified_us > stored_us:
                stored_us = self._notified_us
                try:
                    self._store_progress()
                except BusFullError as error:
                    self.bus_failed(error)
                    log.warning("%s", error)
            if time.monotonic() - forgotten_at > _FORGET_S:
                forgotten_at = time.monotonic()
                self.listener.forget()


class SharedMatcher(_GatewayService):
    """One of any number of workers; they share entities, places and subscriptions."""

    def __init__(
        self, bus: Bus, settings: MatcherSettings, gateway: GatewaySettings | None = None
    ) -> None:
        super().__init__(bus, settings)
        rules = rules_of(settings)
        # What comes through the gateway goes over the bus, to all workers.
        self.front: Front | None = None
        if gateway is not None:
            self.front = Front(bus, rules)
            self.gateway = Gateway(self.front, gateway, self.condition)
        self._states = StateLog(bus, now_us)

        def roster(partition: int) -> Roster:
            return Roster(partition, rules, settings.tile_m, settings.split_above)

        interval_s = settings.snapshot_interval_s
        self.runners = [
            StageRunner(
                bus, self._states, number, topic, make, snapshot_interval_s=interval_s, clock=now_us
            )
            for number, topic, make in (
                (StageNumber.ROSTER, topics.ENTITIES, roster),
                (StageNumber.LANES, topics.TILES, lambda partition: Lanes(partition, rules)),
                (StageNumber.MEETINGS, topics.SIGHTINGS, Meetings),
            )
        ]

    def statistics(self) -> Statistics:
        numbers: Counter[str] = Counter()
        dropped: Counter[str] = Counter()
        for runner in self.runners:
            name = runner.number.name.lower()
            numbers[f"{name}_partitions"] = len(runner.units)
            numbers.update({f"{name}_{one}": value for one, value in runner.counters.items()})
            for unit in runner.units.values():
                numbers.update(unit.stage.statistics())
                dropped.update(unit.stage.dropped)
        named = ("publications", "subscriptions", "pairs", "publications_matched", "pairs_matched")
        gauges = {
            name: value
            for name, value in numbers.items()
            if name in named or name.endswith("_partitions")
        }
        for name in gauges:
            del numbers[name]
        front = Statistics() if self.front is None else self.front.statistics()
        gateway = self._gateway_statistics()
        dropped.update(gateway.dropped)
        dropped.update({f"front.{reason}": count for reason, count in front.dropped.items()})
        return Statistics(
            gauges={**_named_front(front.gauges), **gateway.gauges, **gauges},
            counters={
                **_named_front(front.counters),
                **gateway.counters,
                **numbers,
                "cpu_s": time.process_time(),
            },
            dropped=dropped,
        )

    async def _start(self) -> None:
        await asyncio.to_thread(warm_up)
        await self._states.open()
        self.spawn(self._states.keep_reading())
        for runner in self.runners:
            runner.join()
            self.spawn(runner.run())
        if self.front is not None:
            self.front.open()
            await self._open_gateway()
            self.spawn(self.front.listen())
            self.spawn(self.front.run())

    async def _stop(self) -> None:
        if self.front is not None and self.gateway is not None:
            await self.gateway.stop()
            self.front.close()
        for runner in self.runners:
            await runner.leave()
        self._states.close()


def _notified_in(record: Record) -> int:
    for name, value in record.headers:
        if name == _NOTIFIED and len(value) == _TIME.size:
            return int(_TIME.unpack(value)[0])
    return 0


def _named_front(numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"front_{name}": value for name, value in numbers.items()}
