"""What the bus knows of deliveries: read by several commands."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

from mercury.bus import Bus, Consumer, FromTime, Record, catch_up
from mercury.mediator.ledger import Ledger
from mercury.model import topics
from mercury.model.delivery import Deliveries
from mercury.model.errors import ConfigurationError, PacketError
from mercury.model.message import Message
from mercury.wire import decode

_READ_BATCH = 4096
_SLACK_US = 1_000_000  # clocks of different machines


class LedgerReader:
    """Follows the receipts on a bus."""

    def __init__(self, bus: Bus, since_us: int) -> None:
        self.ledger = Ledger()
        self.unreadable = 0
        self._receipts = bus.subscribe((topics.DELIVERIES,), start=FromTime(since_us))

    def catch_up(self) -> Ledger:
        """Take in what has come since the last call."""
        for records in catch_up(self._receipts, _READ_BATCH):
            for record in records:
                try:
                    payload = decode(record.value).payload
                except PacketError:
                    self.unreadable += 1
                    continue
                if isinstance(payload, Deliveries):
                    self.ledger.add(payload)
        return self.ledger

    def close(self) -> None:
        """Let go."""
        self._receipts.close()


def message_id(text: str) -> tuple[bytes, bool]:
    """Read a message's id, or the beginning of one; tells whether it is whole."""
    digits = text.replace("-", "").lower()
    if not re.fullmatch("[0-9a-f]{4,32}", digits):
        raise ConfigurationError(
            f"{text!r} is no message id: 32 digits as `mercury send` prints them, or the first few"
        )
    whole = len(digits) == 32
    return bytes.fromhex(digits if len(digits) % 2 == 0 else digits[:-1]), whole


def time_of(id: bytes) -> int:
    """When the message with this id was made, in microseconds; ids begin with their time."""
    return int.from_bytes(id[:6], "big") * 1000


def find_message(bus: Bus, text: str, since_us: int) -> Message | None:
    """The addressed message with this id, or the only one whose id begins so."""
    id, whole = message_id(text)
    digits = text.replace("-", "").lower()
    if whole:
        since_us = max(since_us, time_of(id) - _SLACK_US)
    consumer = bus.subscribe(topics.ALERTS, start=FromTime(since_us))
    found: dict[bytes, Message] = {}
    try:
        for record in _records(consumer):
            # The id stands in the bytes as it is: most records need not be decoded.
            if id in record.value:
                try:
                    message = decode(record.value)
                except PacketError:
                    continue
                if message.id.hex().startswith(digits):
                    found[message.id] = message
                    if whole:
                        break
    finally:
        consumer.close()
    if len(found) > 1:
        ids = ", ".join(str(uuid.UUID(bytes=one)) for one in list(found)[:5])
        raise ConfigurationError(f"{text!r} is the beginning of several ids: {ids}")
    return next(iter(found.values()), None)


def _records(consumer: Consumer) -> Iterator[Record]:
    for records in catch_up(consumer, _READ_BATCH):
        yield from records
