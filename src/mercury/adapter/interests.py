"""Which of an adapter's clients subscribed to which content."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mercury.geo import geodesic_m
from mercury.model.area import Position
from mercury.model.errors import FilterError
from mercury.model.filter import compile_filter, interest_id
from mercury.model.message import Subscription
from mercury.model.topics import valid_name
from mercury.session import Session, SessionTable

ANYWHERE = float("inf")
MAX_PER_CLIENT = 256


class Interests:
    """The subscriptions of the clients, grouped by interest."""

    def __init__(self, table: SessionTable, max_subscriptions: int = 1_000_000) -> None:
        self._table = table
        self._max_subscriptions = max_subscriptions
        self._held = 0
        self.wanted: dict[bytes, tuple[str, str]] = {}  # interest -> topic, filter
        # interest -> slot -> subscription id -> how near the content must be
        self._holders: dict[bytes, dict[int, dict[bytes, float]]] = {}
        self._by_slot: dict[int, dict[bytes, bytes]] = {}  # slot -> subscription id -> interest

    def __len__(self) -> int:
        return self._held

    def why_full(self, session: Session, subscription_id: bytes) -> str:
        """Why a client may not hold one more subscription; empty if it may."""
        held = self._by_slot.get(session.slot, {})
        if subscription_id in held:
            return ""
        if len(held) >= MAX_PER_CLIENT:
            return f"{MAX_PER_CLIENT} subscriptions are the most"
        if self._held >= self._max_subscriptions:
            return f"{self._max_subscriptions} subscriptions of all clients are the most"
        return ""

    def holds(self, session: Session, subscription_id: bytes) -> bool:
        """Whether a client has made this subscription in this session."""
        return subscription_id in self._by_slot.get(session.slot, {})

    def add(self, session: Session, subscription: Subscription) -> bytes | None:
        """Add a subscription and return its interest.

        None if it is invalid; the broker tells the client why.
        """
        near_m = ANYWHERE if subscription.near_m is None else subscription.near_m
        if (
            self.why_full(session, subscription.id)
            or not near_m > 0
            or not valid_name(subscription.topic)
        ):
            return None
        try:
            content_filter = compile_filter(subscription.filter)
        except FilterError:
            return None
        self.remove(session, subscription.id)
        interest = interest_id(subscription.topic, content_filter)
        self.wanted[interest] = (subscription.topic, content_filter.text)
        holders = self._holders.setdefault(interest, {})
        holders.setdefault(session.slot, {})[subscription.id] = near_m
        self._by_slot.setdefault(session.slot, {})[subscription.id] = interest
        self._held += 1
        return interest

    def remove(self, session: Session, subscription_id: bytes) -> None:
        held = self._by_slot.get(session.slot, {})
        interest = held.pop(subscription_id, None)
        if interest is None:
            return
        self._held -= 1
        holders = self._holders[interest]
        del holders[session.slot][subscription_id]
        if not holders[session.slot]:
            del holders[session.slot]
        if not holders:
            del self._holders[interest], self.wanted[interest]

    def closed(self, session: Session) -> None:
        for subscription_id in list(self._by_slot.get(session.slot, ())):
            self.remove(session, subscription_id)
        self._by_slot.pop(session.slot, None)

    def is_near(self, session: Session, subscription_id: bytes, position: Position | None) -> bool:
        """Whether content with this position is near enough for a subscription."""
        interest = self._by_slot[session.slot][subscription_id]
        near_m = self._holders[interest][session.slot][subscription_id]
        if near_m == ANYWHERE or position is None:
            return near_m == ANYWHERE
        lat, lon = self._table.lat[session.slot], self._table.lon[session.slot]
        return bool(geodesic_m(position.lat, position.lon, lat, lon) <= near_m)

    def recipients(self, interests: Iterable[bytes], position: Position | None) -> NDArray[np.intp]:
        """Slots of the clients that hold one of the interests, each once.

        A subscription "near me" is only sent content that has a position.
        """
        widest: dict[int, float] = {}
        for interest in interests:
            for slot, subscriptions in self._holders.get(interest, {}).items():
                widest[slot] = max(widest.get(slot, 0.0), *subscriptions.values())
        slots = np.fromiter(widest.keys(), np.intp, len(widest))
        near_m = np.fromiter(widest.values(), np.float64, len(widest))
        anywhere = np.isinf(near_m)
        if position is None or anywhere.all():
            return slots[anywhere]
        distance = geodesic_m(
            position.lat, position.lon, self._table.lat[slots], self._table.lon[slots]
        )
        return slots[anywhere | (distance <= near_m)]
