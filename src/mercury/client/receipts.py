"""What a client told others, and who of them has heard it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mercury.model.delivery import Delivery, DeliveryState
from mercury.model.message import Message


class Receipts:
    """A message on its way to others; the adapters say what becomes of it, client by client."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.deliveries: dict[str, Delivery] = {}  # by client
        self._changed = asyncio.Event()

    @property
    def heard(self) -> list[str]:
        """Who has it for sure."""
        return sorted(
            one.client
            for one in self.deliveries.values()
            if one.state is DeliveryState.ACKNOWLEDGED
        )

    @property
    def is_settled(self) -> bool:
        """Whether it is known, for all that were found so far, what became of it."""
        return bool(self.deliveries) and all(
            one.state is not DeliveryState.WAITING for one in self.deliveries.values()
        )

    async def settled(self, timeout_s: float | None = None) -> dict[str, Delivery]:
        """Wait until it is known what became of it; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not self.is_settled:
                self._changed.clear()
                await self._changed.wait()
        return dict(self.deliveries)

    def update(self, rows: Iterable[Delivery]) -> None:
        """Take in what an adapter says."""
        for row in rows:
            known = self.deliveries.get(row.client)
            # Receipts may overtake each other; an answer of the recipient is the last word.
            if known is None or known.settled_us <= row.settled_us:
                self.deliveries[row.client] = row
        self._changed.set()
