"""What the bus knows of deliveries: read by several commands."""

from __future__ import annotations

from mercury.bus import Bus, FromTime, catch_up
from mercury.mediator.ledger import Ledger
from mercury.model import topics
from mercury.model.delivery import Deliveries
from mercury.model.errors import PacketError
from mercury.wire import decode

_READ_BATCH = 4096


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
