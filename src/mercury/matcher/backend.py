"""What the gateway needs of a matching backend: the hub, or a front of many workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mercury.matching import Events, NearbyPublication
from mercury.model.matching import NearSubscription, Publication, Side
from mercury.service.statistics import Statistics
from mercury.wire.declarations import Refusal


class Listener(Protocol):
    """An owner of subscriptions."""

    def notify(self, events: Events) -> None:
        """Events of its subscriptions, in order; must not block."""


class Participant(Listener, Protocol):
    """An owner of declarations made through the gateway."""

    def tell(self, events: Events) -> None:
        """The name by which the front calls `notify`."""
        self.notify(events)

    def refuse(self, ref: int, refusal: Refusal) -> None:
        """One of its declarations was refused later."""


class MatchingBackend(Protocol):
    """Takes declarations and positions, notifies participants of their subscriptions' matches.

    A reference's low 32 bits are a slot, which tables are made by; the rest is its generation.
    """

    @property
    def clock(self) -> Callable[[], int]: ...

    def publish(
        self,
        publication: Publication,
        time_us: int | None = None,
        participant: Participant | None = None,
    ) -> int:
        """Declare or change a publication; returns its reference."""

    def subscribe(
        self, subscription: NearSubscription, listener: Participant, time_us: int | None = None
    ) -> int:
        """Declare or change a subscription, whose events go to the listener; its reference."""

    def withdraw(self, ref: int) -> None:
        """End a publication or a subscription; unknown ones are ignored."""

    def move(
        self,
        refs: NDArray[np.int64],
        lats: NDArray[np.float64],
        lons: NDArray[np.float64],
        times_us: NDArray[np.int64],
        accuracy_m: NDArray[np.float64],
    ) -> None:
        """Set positions of entities, one row an update."""

    def move_one(
        self, ref: int, lat: float, lon: float, time_us: int | None = None, accuracy_m: float = 0.0
    ) -> None:
        """Set the position of one entity."""

    def ask(
        self, subscription: NearSubscription, lat: float | None, lon: float | None, limit: int
    ) -> asyncio.Future[list[NearbyPublication]]:
        """The current matches of a subscription, nearest first; may be done already."""

    def find(self, side: Side, entity_id: str) -> int | None:
        """The reference of an entity that is declared."""

    def publication(self, ref: int) -> Publication | None:
        """A publication by reference, also for a while after its end."""

    def revisions(self, refs: NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each publication that changes with its values."""

    def topics(self) -> list[dict[str, str | int]]:
        """The topics in use, and the number of entities of each side."""

    def forget(self, listener: Participant) -> None:
        """Stop notifying a listener and withdraw its subscriptions."""

    def flush(self) -> None:
        """Process the collected updates and notify listeners."""

    def statistics(self) -> Statistics:
        """Gauges and counters."""
