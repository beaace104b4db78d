"""Receipts of what a client or a service sent: which recipients have received it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from mercury.bus import Bus, FromTime
from mercury.client.arguments import checked
from mercury.mediator.explain import end_of
from mercury.mediator.ledger import final, merged
from mercury.model import topics
from mercury.model.delivery import KEPT_US, Deliveries, Delivery, DeliveryState
from mercury.model.errors import BusUnavailableError, NotSettledError, PacketError, RequestError
from mercury.model.message import AddressKind, DeliveryPolicy, Message
from mercury.service.clock import now_us
from mercury.wire import decode

# Adapters report how a message ended within this time, also when they are busy.
GRACE_US = 1_000_000
_SLACK_US = 60_000_000  # for clocks that differ between machines


class Receipts:
    """A message to others, and its delivery as the adapters report it, client by client.

    It always settles: deliveries not reported a second after the message's end have ended
    without an answer. A message without an end is kept for a day.
    """

    def __init__(self, message: Message) -> None:
        self.message = message
        self.deliveries: dict[str, Delivery] = {}  # by client
        self._ends_us = end_of(message) or message.sent_us + KEPT_US
        self.is_taken = False  # an adapter has said that it has the message
        self._refusal = ""  # why the adapter does not take the message
        self._is_asked = message.policy is not DeliveryPolicy.FIRE_AND_FORGET
        self._changed = asyncio.Event()

    @property
    def id(self) -> UUID:
        """The id of the message, as `mercury why` takes it."""
        return self.message.id

    @property
    def heard(self) -> list[str]:
        """The clients that have acknowledged it."""
        return sorted(
            one.client
            for one in self.deliveries.values()
            if one.state is DeliveryState.ACKNOWLEDGED
        )

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known for all recipients so far."""
        if now_us() >= self._ends_us + GRACE_US:
            self._end()
            return True
        return bool(self._refusal) or (
            bool(self.deliveries)
            and all(one.state is not DeliveryState.WAITING for one in self.deliveries.values())
        )

    @checked
    async def settled(self, timeout_s: float | None = None) -> dict[str, Delivery]:
        """Wait until all outcomes are known; no client was addressed if there is no row.

        Raises RequestError if the adapter refused the message or none had it before its end,
        NotSettledError (a TimeoutError) if it is not known after `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait()
        except TimeoutError:
            waiting = [one.client for one in self.deliveries.values() if not one.settled_us]
            who = f"{', '.join(waiting[:3])} did not answer" if waiting else "nobody was addressed"
            raise NotSettledError(
                f"message {self.id} is not settled after {timeout_s:g} s: so far {who}"
            ) from None
        if self._refusal:
            raise RequestError(f"the adapter refused message {self.id}: {self._refusal}")
        if self._is_lost:
            raise RequestError(f"message {self.id} ended before an adapter said that it has it")
        return dict(self.deliveries)

    def update(self, rows: Iterable[Delivery]) -> None:
        """Add what an adapter reports."""
        for row in rows:
            known = self.deliveries.get(row.client)
            self.deliveries[row.client] = row if known is None else merged(known, row)
        self._changed.set()

    def refuse(self, reason: str) -> None:
        self._refusal = reason
        self._changed.set()

    @property
    def _is_lost(self) -> bool:
        """Whether no adapter has reported it, though one that had it would have."""
        is_named = self.message.destination.kind is AddressKind.CLIENT
        return not self.deliveries and not self.is_taken and (is_named or self._is_asked)

    async def _wait(self) -> None:
        while not self.is_settled:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._left_s()):
                    await self._changed.wait()

    def _left_s(self) -> float:
        return max(self._ends_us + GRACE_US - now_us(), 0) / 1e6

    def _end(self) -> None:
        """No more reports will come: open deliveries end with the message."""
        to = self.message.destination
        if to.kind is AddressKind.CLIENT and self.is_taken and to.name not in self.deliveries:
            self.deliveries[to.name] = Delivery(to.name, DeliveryState.WAITING)
        for name, row in self.deliveries.items():
            self.deliveries[name] = final(row, self._ends_us, asked=self._is_asked)


class BusReceipts(Receipts):
    """The receipts of what a service sent; they are read from the bus while awaited."""

    def __init__(self, message: Message, bus: Bus) -> None:
        super().__init__(message)
        self.is_taken = True  # it is on the bus, from which they all read
        self._bus = bus

    async def _wait(self) -> None:
        start = FromTime(self.message.sent_us - _SLACK_US)
        consumer = self._bus.subscribe((topics.DELIVERIES,), start=start)
        key = self.id.bytes
        try:
            while not self.is_settled:
                left_s = self._left_s()
                records = await consumer.read(timeout_s=left_s)
                if not records and self._left_s() > left_s / 2:
                    raise BusUnavailableError(f"the bus was closed while {self.id} was on its way")
                for record in records:
                    with suppress(PacketError):
                        said = decode(record.value).payload if record.key == key else None
                        if isinstance(said, Deliveries):
                            self.update(said.rows)
        finally:
            consumer.close()
