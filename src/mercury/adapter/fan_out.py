"""One body for many clients, as it goes from what decides to what sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tags = NDArray[np.int32]


@dataclass(slots=True)
class FanOut:
    """One body for many clients."""

    kind: int
    priority: int
    body: bytes
    expires_us: int  # 0: never
    slots: NDArray[np.intp]
    generations: NDArray[np.uint32]
    flags: int = 0  # of the packets' headers
    # Called after each part with the `tags` of those sent, of those not sent, and the time.
    tags: Tags | None = None
    on_part: Callable[[Tags, Tags, float], None] | None = None
    done: int = 0  # slots handled
    sent: int = 0

    def report(self, first: int, last: int, sent: NDArray[np.bool_] | None, now: float) -> None:
        """Say what became of the slots from first to last; None: nothing went out."""
        if self.on_part is not None and self.tags is not None and last > first:
            tags = self.tags[first:last]
            if sent is None:
                sent = np.zeros(len(tags), bool)
            self.on_part(tags[sent], tags[~sent], now)


# One packet for one client: packet, address, priority, expiry (0: never).
Single = tuple[bytes, bytes, int, int]
