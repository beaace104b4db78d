"""What the bus holds of messages: themselves, their receipts, and their recipients' positions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

from mercury.bus import Bus, FromTime, Record, catch_up
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

LIVE_US = 3_600_000_000  # older messages are in the history

_BATCH = 512
_LEDGER_BATCH = 4096
_SLACK_US = 60_000_000  # greatest error of a message's own time, by devices' clocks
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
    """When the message with this id was created, in microseconds; ids begin with their time."""
    return int.from_bytes(id.bytes[:6], "big") * 1000


class TrailReader:
    """Reads from a bus what became of messages.

    It raises RequestError once it has read `most_records`, so that a service can limit it.
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
        """The last message of the last hour that has recipients."""
        last: Message | None = None
        async with aclosing(self._read(topics.ALERTS, now_us() - LIVE_US)) as records:
            async for record in records:
                message = _message(record)
                if message is not None and (last is None or message.sent_us >= last.sent_us):
                    last = message
        return last

    async def why(self, message: Message, client: str | None, clock: Clock) -> tuple[Entry, str]:
        """The receipts of a message, and what became of it: for one client, or for all."""
        if message.destination.kind is AddressKind.BROKER:  # no receipt is asked for
            return _no_rows(message), about_unaddressable(message, await self._following(message))
        entry = await self._receipts(message)
        if message.destination.kind is AddressKind.CLIENT and not entry.rows:
            client = client or message.destination.name  # the awaited recipient
        if client is None:
            summary = Ledger().summary([entry])
            return entry, about_all(entry, summary, end_of(message), now_us(), clock)
        row = entry.rows.get(client)
        if row is None:
            seen = await self._whereabouts(message, client)
            return entry, about_unaddressed(client, message, seen, now_us(), clock)
        asked = entry.about.policy != DeliveryPolicy.FIRE_AND_FORGET
        return entry, about_one(row, end_of(message), now_us(), clock, asked=asked)

    async def _receipts(self, message: Message) -> Entry:
        ledger, id = Ledger(), message.id
        until_us = (end_of(message) or now_us()) + _AFTER_US  # its receipts are written by then
        reads = self._read((topics.DELIVERIES,), _before(message), until_us)
        async with aclosing(reads) as records:
            async for record in records:
                if record.key == id.bytes:
                    _enter(ledger, record)
        return ledger.get(id) or _no_rows(message)

    async def _whereabouts(self, message: Message, client: str) -> Whereabouts:
        """Where a client was while a message was valid, and shortly before and after."""
        seen, key = Whereabouts(message), client.encode()
        ends_us = end_of(message) or now_us()
        reads = self._read((topics.REPORTS,), message.sent_us - _BEFORE_US, ends_us + _AFTER_US)
        async with aclosing(reads) as records:
            async for record in records:
                fix = read_fix(record.headers) if record.key == key else None
                if fix is not None:
                    seen.report(fix.lat, fix.lon, fix.heading_deg, record.timestamp_us)
        return seen

    async def _matching(
        self, names: tuple[str, ...], since_us: int, digits: str
    ) -> dict[UUID, Message]:
        found: dict[UUID, Message] = {}
        # The id is in the bytes unencoded: most records need not be decoded.
        beginning = bytes.fromhex(digits[: len(digits) // 2 * 2])
        async with aclosing(self._read(names, since_us)) as records:
            async for record in records:
                message = _message(record) if beginning in record.value else None
                if message is not None and message.id.hex.startswith(digits):
                    found[message.id] = message
                    if len(digits) == 32:
                        break
        return found

    async def _following(self, message: Message) -> Message | None:
        """The alert that a message became."""
        async with aclosing(self._read(topics.ALERTS, _before(message))) as records:
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
            # An empty read alone is no proof: a remote bus may be slower than its timeout.
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
                    await asyncio.sleep(0)  # let other tasks run
                for record in records:
                    yield record
        finally:
            consumer.close()


class LedgerReader:
    """Follows the receipts of all messages."""

    def __init__(self, bus: Bus, since_us: int) -> None:
        self.ledger = Ledger()
        self._receipts = bus.subscribe((topics.DELIVERIES,), start=FromTime(since_us))

    def catch_up(self) -> Ledger:
        """Read the receipts since the last call."""
        for records in catch_up(self._receipts, _LEDGER_BATCH):
            for record in records:
                _enter(self.ledger, record)
        return self.ledger

    def close(self) -> None:
        self._receipts.close()


def _enter(ledger: Ledger, record: Record) -> None:
    message = _message(record)
    if message is not None and isinstance(message.payload, Deliveries):
        ledger.add(message.payload)


def _message(record: Record) -> Message | None:
    try:
        return decode(record.value)
    except PacketError:
        return None


def _before(message: Message) -> int:
    """A time before anything was appended about a message."""
    return min(time_of(message.id), message.sent_us) - _SLACK_US


def _no_rows(message: Message) -> Entry:
    return Entry(Deliveries(message.id, str(message.source), (), message.topic))
