"""The matcher: one engine, its gateways, and the bus (`moving` in, `matches` out)."""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import Counter

from mercury.bus import Bus, Consumer, FromTime, Record
from mercury.config import GatewaySettings, MatcherSettings
from mercury.matcher.bus_listener import BusListener
from mercury.matcher.gateway import Gateway
from mercury.matcher.hub import Hub
from mercury.matcher.rules import rules_of
from mercury.matching import warm_up
from mercury.model import topics
from mercury.model.errors import BusFullError
from mercury.model.message import Address
from mercury.service import Service, Statistics, now_us

log = logging.getLogger(__name__)

_BATCH = 512
_PROGRESS_S = 1.0
_FORGET_S = 30.0
_NOTIFIED = "notified"
_TIME = struct.Struct("<q")


class Matcher(Service):
    """Finds what is near what moves.

    What was declared over the bus is found again after a restart: records of the last moments are
    read again, and nobody is notified twice.
    """

    part = "matcher"

    def __init__(
        self, bus: Bus, settings: MatcherSettings, gateway: GatewaySettings | None = None
    ) -> None:
        address = Address.service(settings.id)
        super().__init__(bus, address, metrics=settings.metrics)
        self.settings = settings
        self.hub = Hub(rules_of(settings))
        self.gateway = None if gateway is None else Gateway(self.hub, gateway, self.condition)
        self.listener = BusListener(self.hub, self._append)
        self.dropped: Counter[str] = Counter()
        self._moving: Consumer | None = None
        self._notified_us = 0  # time of the newest record whose events were all sent

    def statistics(self) -> Statistics:
        hub = self.hub.statistics()
        gateway = Statistics() if self.gateway is None else self.gateway.statistics()
        listener = self.listener
        dropped: Counter[str] = Counter(self.dropped)
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
        if self.gateway is not None:
            await self.gateway.start()
            log.info("the gateway is open at port %d", self.gateway.port)
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
        """Learn anew who is where, without notifying anybody twice."""
        lookback_us = int((self.settings.ttl_s + 5.0) * 1e6)
        notified_us = await self._last_notified_us(lookback_us)
        self._moving = self.bus.subscribe(
            (topics.ENTITIES,), start=FromTime(now_us() - lookback_us)
        )
        self.listener.silent = notified_us > 0
        while records := await self._moving.read_now(_BATCH):
            self._take(records, notified_us)
        self._take([], 0)
        self.hub.flush()

    async def _last_notified_us(self, lookback_us: int) -> int:
        states = await self._read((topics.MATCHER_STATES,), now_us() - lookback_us)
        notified_us = max([0, *map(self._notified_in, states)])
        if notified_us:
            matches = await self._read((topics.MATCHES,), notified_us)
            notified_us = max([notified_us, *map(self._notified_in, matches)])
        return notified_us

    async def _read(self, names: tuple[str, ...], since_us: int) -> list[Record]:
        consumer = self.bus.subscribe(names, start=FromTime(since_us))
        found: list[Record] = []
        try:
            while records := await consumer.read_now(_BATCH):
                found += [one._replace(value=b"") for one in records]
        finally:
            consumer.close()
        return found

    @staticmethod
    def _notified_in(record: Record) -> int:
        for name, value in record.headers:
            if name == _NOTIFIED and len(value) == _TIME.size:
                return int(_TIME.unpack(value)[0])
        return 0

    async def _serve(self) -> None:
        assert self._moving is not None
        while True:
            self._take(await self.read(self._moving, _BATCH), 0)

    def _take(self, records: list[Record], silent_until_us: int) -> None:
        listener = self.listener
        for record in records:
            if listener.silent and record.timestamp_us > silent_until_us:
                self.hub.flush()
                listener.silent = False
            self._notified_us = max(self._notified_us, record.timestamp_us)
            listener.take(record)
        if not records and listener.silent:
            self.hub.flush()
            listener.silent = False

    def _append(self, key: bytes, value: bytes) -> None:
        try:
            notified = ((_NOTIFIED, _TIME.pack(self._notified_us)),)
            self.bus.append(topics.MATCHES, value, key, notified)
        except BusFullError as error:
            self.bus_failed(error)
            self.dropped["bus-full"] += 1

    def _store_progress(self) -> None:
        self.bus.append(
            topics.MATCHER_STATES,
            b"",
            self.settings.id.encode(),
            ((_NOTIFIED, _TIME.pack(self._notified_us)),),
        )

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
