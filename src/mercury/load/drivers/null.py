"""`null:` sends nowhere: how fast is the generator itself?"""

from __future__ import annotations

from mercury.load.drivers.api import Batch, Clock, Say
from mercury.load.tally import Tally
from mercury.load.workload import Workload


class NullDriver:
    """Counts."""

    def __init__(self) -> None:
        self.tally = Tally(taken=0, dropped=0)

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Nobody is there."""
        self.tally.note("nothing was sent: null: measures the generator alone")

    def send(self, batch: Batch) -> None:
        """Count and forget."""
        self.tally.sent += len(batch)
        self.tally.taken = self.tally.sent

    async def settle(self, timeout_s: float) -> None:
        """Nothing is on its way."""

    async def close(self) -> None:
        """Nothing was opened."""
