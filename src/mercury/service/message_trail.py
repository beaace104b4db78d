"""What the bus knows of a message: the message itself, its receipts, and where a client was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

from mercury.bus import Bus, FromTime, Record
from mercury.mediator.explain import (
    Clock,
    Whereabouts,
    about_all,
    about_one,
    about_unaddressable,
    about_unaddressed,
    end_of,
)
from mercury.mediator.ledger import Entry, Ledger
from mercury.model import topics
from mercury.model.delivery import Deliveries
from mercury.model.errors import ConfigurationError, PacketError, RequestError
from mercury.model.message import AddressKind, DeliveryPolicy, Message
from mercury.service.clock import now_us
from mercury.wire import decode
from mercury.wire.records import read_fix

LIVE_US = 3_600_000_000  # what is older is asked of the history

_BATCH = 512
_SLACK_US = 60_000_000  # clocks of devices: what a message says of its time may be off by so much
_BEFORE_US = 60_000_000  # where a client was before a message was sent
_AFTER_US = 60_000_000
_OTHERS = (topics.EVENTS_PREFIX + "*", topics.CONTENT_PREFIX + "*", topics.REQUESTS)


def id_digits(text: str) -> str:
    """Read a message's id, or the beginning of one."""
    digits = text.replace("-", "").lower()
    if not re.fullmatch("[0-9a-f]{4,32}", digits):
        raise ConfigurationError(
            f"{text!r} is no message id: 32 digits as `mercury send` prints them, or the first few"
        )
    return digits


def time_of(id: UUID) -> int:
    """When the message with this id was made, in microseconds; ids begin with their time."""
    return int.from_bytes(id.bytes[:6], "big") * 1000


@dataclass(frozen=True, slots=True)
class Trail:
    """What is known of one message."""

    message: Message
    entry: Entry
    follows: Message | None = None  # the alert that it became

    @property
    def is_addressed(self) -> bool:
        """Whether it is for somebody, who is asked for a receipt."""
        return self.message.destination.kind is not AddressKind.BROKER

    def about_all(self, clock: Clock) -> str:
        """What became of it for all it was addressed to."""
        if not self.is_addressed:
            return about_unaddressable(self.message, self.follows)
        summary = Ledger().summary([self.entry])
        return about_all(self.entry, summary, end_of(self.message), now_us(), clock)

    def about_one(self, client: str, seen: Whereabouts, clock: Clock) -> str:
        """What became of it for one client."""
        if not self.is_addressed:
            return about_unaddressable(self.message, self.follows)
        row = self.entry.rows.get(client)
        if row is None:
            return about_unaddressed(client, self.message, seen, now_us(), clock)
        asked = self.entry.about.policy != DeliveryPolicy.FIRE_AND_FORGET
        return about_one(row, end_of(self.message), now_us(), clock, asked=asked)


class TrailReader:
    """Looks on a bus for what became of messages.

    With `most_records` it reads no more than so many, then raises RequestError: for who serves
    others meanwhile.
    """

    def __init__(self, bus: Bus, most_records: int | None = None) -> None:
        self._bus = bus
        self._left = most_records

    async def find(self, text: str) -> Message | None:
        """The message of the last hour with this id, or the only one whose id begins so."""
        digits = id_digits(text)
        since_us = now_us() - LIVE_US
        if len(digits) == 32:
            since_us = max(since_us, time_of(UUID(digits)) - _SLACK_US)
        for names in (topics.ALERTS, _OTHERS):
            found = await self._matching(names, since_us, digits)
            if len(found) > 1:
                ids = ", ".join(str(one) for one in list(found)[:5])
                raise ConfigurationError(f"{text!r} is the beginning of several ids: {ids}")
            if found:
                return next(iter(found.values()))
        return None

    async def last(self) -> Message | None:
        """The last message of the last hour that was addressed to somebody."""
        last: Message | None = None
        async with aclosing(self._read(topics.ALERTS, now_us() - LIVE_US)) as records:
            async for record in records:
                message = _message(record)
                if message is not None and (last is None or message.sent_us >= last.sent_us):
                    last = message
        return last

    async def trail(self, message: Message) -> Trail:
        """The receipts of a message."""
        ledger, id = Ledger(), message.id
        since_us = min(time_of(id), message.sent_us) - _SLACK_US
        if message.destination.kind is AddressKind.BROKER:
            return Trail(message, _no_rows(message), await self._following(message, since_us))
        until_us = (end_of(message) or now_us()) + _AFTER_US  # how it ended is written by then
        async with aclosing(self._read((topics.DELIVERIES,), since_us, until_us)) as records:
            async for record in records:
                found = _message(record) if record.key == id.bytes else None
                if found is not None and isinstance(found.payload, Deliveries):
                    ledger.add(found.payload)
        return Trail(message, ledger.get(id) or _no_rows(message))

    async def whereabouts(self, message: Message, client: str) -> Whereabouts:
        """Where a client was while a message held, and shortly before and after."""
        seen, key = Whereabouts(message), client.encode()
        ends_us = end_of(message) or now_us()
        reads = self._read((topics.REPORTS,), message.sent_us - _BEFORE_US, ends_us + _AFTER_US)
        async with aclosing(reads) as records:
            async for record in records:
                fix = read_fix(record.headers) if record.key == key else None
                if fix is not None:
                    seen.report(fix.lat, fix.lon, fix.heading_deg, record.timestamp_us)
        return seen

    async def why(self, message: Message, client: str | None, clock: Clock) -> tuple[Trail, str]:
        """What became of a message, for one client or for all."""
        trail = await self.trail(message)
        if client is None:
            return trail, trail.about_all(clock)
        seen = Whereabouts(message)
        if client not in trail.entry.rows and trail.is_addressed:
            seen = await self.whereabouts(message, client)
        return trail, trail.about_one(client, seen, clock)

    async def _matching(
        self, names: tuple[str, ...], since_us: int, digits: str
    ) -> dict[UUID, Message]:
        found: dict[UUID, Message] = {}
        # The id stands in the bytes as it is: most records need not be decoded.
        beginning = bytes.fromhex(digits[: len(digits) // 2 * 2])
        async with aclosing(self._read(names, since_us)) as records:
            async for record in records:
                message = _message(record) if beginning in record.value else None
                if message is not None and message.id.hex.startswith(digits):
                    found[message.id] = message
                    if len(digits) == 32:
                        break
        return found

    async def _following(self, message: Message, since_us: int) -> Message | None:
        async with aclosing(self._read(topics.ALERTS, since_us)) as records:
            async for record in records:
                found = _message(record) if message.id.bytes in record.value else None
                if found is not None and found.correlation == message.id:
                    return found
        return None

    async def _read(
        self, names: tuple[str, ...], from_us: int, to_us: int | None = None
    ) -> AsyncGenerator[Record, None]:
        consumer = self._bus.subscribe(names, start=FromTime(from_us))
        try:
            # That nothing comes proves nothing: a bus far away may be slower than its timeout.
            while (records := await consumer.read_now(_BATCH)) or consumer.lag():
                times_us = [record.timestamp_us for record in records]
                if to_us is not None and min(times_us, default=0) > to_us:
                    return
                if self._left is not None:
                    self._left -= len(records)
                    if self._left < 0:
                        raise RequestError(
                            "too much went over the bus since: ask `mercury why` on the server"
                        )
                    await asyncio.sleep(0)  # others are served meanwhile
                for record in records:
                    yield record
        finally:
            consumer.close()


def _message(record: Record) -> Message | None:
    try:
        return decode(record.value)
    except PacketError:
        return None


def _no_rows(message: Message) -> Entry:
    return Entry(Deliveries(message.id, str(message.source), (), message.topic))
