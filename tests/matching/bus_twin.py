"""The brute-force twin as a matcher on the bus: `moving` in, `matches` out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from matching.twin import Twin
from wire.frames import Declared, Moved, Withdrawn, read_frame

from mercury.bus import Bus
from mercury.matching import MatchingRules
from mercury.model import topics
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, NearSubscription, Publication, entity_key
from mercury.wire.declarations import KeyedDeclaration, Refusal, refusal
from mercury.wire.match_frames import (
    EVENTS,
    FrameWriter,
    bucket_key,
    buckets_of,
    from_e7,
    rows,
    to_e7,
)


class BusTwin:
    """Everything comes in order, one record after the other."""

    def __init__(self, bus: Bus, rules: MatchingRules | None = None) -> None:
        self.twin = Twin(rules)
        self.moves = 0
        self.records = 0
        self._bus = bus
        self._names: dict[int, tuple[str, str]] = {}  # by key: side and id
        self._consumer = bus.subscribe((topics.ENTITIES,))

    async def run(self) -> None:
        while True:
            for record in await self._consumer.read(timeout_s=0.02):
                self.take(record.value)
            self.twin.tick(time.time_ns() // 1000)
            self._notify()

    def take(self, value: bytes) -> None:
        self.records += 1
        for segment in read_frame(value):
            if isinstance(segment, Declared):
                for declaration in segment.declarations:
                    self._declare(declaration)
            elif isinstance(segment, Withdrawn):
                for key, time_us in segment.rows.tolist():
                    if key in self._names:
                        self.twin.withdraw(*self._names[key], time_us)
            elif isinstance(segment, Moved):
                self._move(segment)
        self._notify()

    def forget_everything(self) -> None:
        """Begin anew with nothing, as a restarted matcher does."""
        self.twin = Twin(self.twin.rules)
        self._names.clear()

    def close(self) -> None:
        self._consumer.close()

    def _move(self, segment: Moved) -> None:
        self.moves += len(segment.rows)
        for key, time_us, lat_e7, lon_e7, accuracy_m, _sequence in segment.rows.tolist():
            side, name = self._names.get(key, ("publication", ""))
            lat, lon = float(from_e7(lat_e7)), float(from_e7(lon_e7))
            self.twin.move(side, name, lat, lon, time_us, accuracy_m)

    def _declare(self, declaration: KeyedDeclaration) -> None:
        what = declaration.what
        try:
            if isinstance(what, Refusal):
                raise MatchingError(what.sentence, what.reason)
            is_publication = isinstance(what, Publication)
            self.twin.rules.check(what.topic, what.radius_m or 0.0, publication=is_publication)
        except MatchingError as error:
            frame = FrameWriter().refuse([refusal(declaration.key, error)])
            self._append(declaration.key, frame)
            return
        self._names[declaration.key] = (declaration.side, what.id)
        if isinstance(what, NearSubscription):
            self.twin.subscribe(what, declaration.time_us)
        else:
            self.twin.publish(what, declaration.time_us)

    def _notify(self) -> None:
        events, self.twin.notified = self.twin.notified, []
        for one in events:
            publication = entity_key("publication", one.publication)
            subscription = entity_key("subscription", one.subscription)
            entity = self.twin.publications.get(one.publication)
            frame = FrameWriter()
            if entity is not None and one.event_type is EventType.ENTER:
                assert isinstance(entity.what, Publication)
                frame.describe({publication: entity.what})
            lat, lon = (entity.place if entity is not None else None) or (0.0, 0.0)
            frame.notify(
                rows(
                    EVENTS,
                    1,
                    subscription=subscription,
                    publication=publication,
                    time_us=one.time_us,
                    lat_e7=to_e7(lat),
                    lon_e7=to_e7(lon),
                    distance_m=one.distance_m,
                    event_type=one.event_type,
                    reason=one.reason,
                )
            )
            self._append(subscription, frame)

    def _append(self, subscription: int, frame: FrameWriter) -> None:
        self._bus.append(
            topics.MATCHES, frame.to_bytes(), bucket_key(int(buckets_of(subscription)))
        )


@asynccontextmanager
async def bus_twin(bus: Bus, rules: MatchingRules | None = None) -> AsyncIterator[BusTwin]:
    """A matcher for the length of a test."""
    matcher = BusTwin(bus, rules)
    running = asyncio.create_task(matcher.run())
    try:
        yield matcher
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        matcher.close()
