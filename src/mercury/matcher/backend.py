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
    """Somebody who has subscriptions."""

    def notify(self, events: Events) -> None:
        """Rows of its subscriptions, in order; must not block."""


class Participant(Listener, Protocol):
    """Somebody who declared something through the gateway."""

    def tell(self, events: Events) -> None:
        """What the front calls `notify`."""
        self.notify(events)

    def refuse(self, ref: int, refusal: Refusal) -> None:
        """What it declared does not hold, as turned out later."""


class MatchingBackend(Protocol):
    """Takes declarations and positions, notifies participants of what their subscriptions match.

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
        """Declare or change a publication; its reference."""

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
        """Say where things are, one row an update."""

    def move_one(
        self, ref: int, lat: float, lon: float, time_us: int | None = None, accuracy_m: float = 0.0
    ) -> None:
        """Say where one thing is."""

    def ask(
        self, subscription: NearSubscription, lat: float | None, lon: float | None, limit: int
    ) -> asyncio.Future[list[NearbyPublication]]:
        """What a subscription would be notified of now, nearest first; may be there already."""

    def find(self, side: Side, entity_id: str) -> int | None:
        """The reference of something that lives."""

    def publication(self, ref: int) -> Publication | None:
        """What a publication is, also for a while after it has gone."""

    def revisions(self, refs: NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each publication that is another once its values are."""

    def topics(self) -> list[dict[str, str | int]]:
        """The topics that something is declared for, and how much of each side."""

    def forget(self, listener: Participant) -> None:
        """Tell it nothing more and withdraw its subscriptions."""

    def flush(self) -> None:
        """Hand over what was collected, and tell what is known to have happened."""

    def statistics(self) -> Statistics:
        """Numbers for those who watch."""
