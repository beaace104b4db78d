"""What all clients of a gateway share: the hub, who declared what, numbers and counters."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import Any

import numpy as np

from mercury.config import GatewaySettings
from mercury.matcher.backend import MatchingBackend, Participant
from mercury.matcher.gateway.numbering import LookupTable, PublicationNumbers
from mercury.matcher.gateway.requests import NearRequest, PositionUpdate
from mercury.matching import Events, NearbyPublication
from mercury.model.errors import FilterError, MatchingError
from mercury.model.matching import EventType, Publication
from mercury.service.statistics import Statistics
from mercury.wire.gateway_frames import NO_HANDLE


class Register:
    """What all clients of a gateway share."""

    def __init__(self, hub: MatchingBackend, settings: GatewaySettings) -> None:
        self.hub = hub
        self.settings = settings
        self.handles = LookupTable(NO_HANDLE, np.uint32)  # of subscriptions, by slot
        self.numbers = PublicationNumbers()
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()  # rows, questions and frames, by reason
        self.connections = 0
        self.streams = 0
        self._owners: dict[int, Participant] = {}  # of publications, by reference
        # Two clients may both name a subscription "me": each has its own in the engine. The
        # token distinguishes it from those of an earlier run of this gateway.
        self._token = secrets.token_hex(4)
        self._clients = 0

    def new_client(self) -> str:
        """The prefix of a new client's subscriptions in the engine."""
        self._clients += 1
        return f"web-{self._token}-{self._clients}/"

    def is_full(self) -> bool:
        """Whether a further client must be refused."""
        return self.connections + self.streams >= self.settings.max_connections

    def publish(
        self, publication: Publication, update: PositionUpdate | None, owner: Participant | None
    ) -> int:
        """Declare a publication; its owner is the last client that declared it."""
        time_us = self.checked_time_us(update)
        ref = self.hub.publish(publication, time_us, owner)
        if owner is None:
            self._owners.pop(ref, None)
        else:
            self._owners[ref] = owner
        self.move(ref, update, time_us)
        return ref

    def move(self, ref: int, update: PositionUpdate | None, time_us: int | None) -> None:
        """Set the position of an entity."""
        if update is not None:
            self.hub.move_one(ref, update.lat, update.lon, time_us, update.accuracy_m)

    def withdraw_publication(self, ref: int, owner: Participant | None) -> None:
        """End a publication, unless another has declared it since."""
        if self._owners.get(ref) == owner:
            self._owners.pop(ref, None)
            self.hub.withdraw(ref)

    def ask(self, wanted: NearRequest) -> asyncio.Future[list[NearbyPublication]]:
        """Answer a query; the answer may be done already."""
        lat, lon = (None, None) if wanted.update is None else (wanted.update.lat, wanted.update.lon)
        return self.hub.ask(wanted.subscription, lat, lon, wanted.limit)

    def refused(self, error: Exception) -> dict[str, Any]:
        """The answer to one of `requests.REFUSED`, which is counted by its reason."""
        if isinstance(error, MatchingError):
            sentence, reason = str(error), error.reason
        else:
            reason = "where" if isinstance(error, FilterError) else "area"
            sentence = f"{reason}: {error}"
        self.dropped[f"refused-{reason}"] += 1
        return {"error": sentence, "reason": reason}

    def checked_time_us(self, update: PositionUpdate | None) -> int | None:
        """The time of a position; None means now."""
        time_us = None if update is None else update.time_us
        if time_us is not None and time_us > self.latest_us():
            raise MatchingError(
                f"time_us is more than {self.settings.max_ahead_s:g} s ahead of the time here",
                "time_us",
            )
        return time_us

    def latest_us(self) -> int:
        """The latest time that an update may have."""
        return self.hub.clock() + round(self.settings.max_ahead_s * 1e6)

    def thinned(self, events: Events, waiting_bytes: int) -> Events:
        """The events that a slow client is still sent."""
        low, high = self.settings.low_mark_bytes, self.settings.high_mark_bytes
        if waiting_bytes <= low:
            return events
        shed = events.event_type == EventType.INSIDE
        self.counts["events_shed_inside"] += int(np.count_nonzero(shed))
        if waiting_bytes > (low + high) // 2:
            dwell = events.event_type == EventType.DWELL
            self.counts["events_shed_dwell"] += int(np.count_nonzero(dwell))
            shed |= dwell
        return events.take(~shed) if shed.any() else events

    def statistics(self) -> Statistics:
        return Statistics(
            gauges={"gateway_connections": self.connections, "gateway_streams": self.streams},
            counters={f"gateway_{name}": self.counts[name] for name in _COUNTED},
            dropped={f"gateway.{reason}": count for reason, count in self.dropped.items()},
        )


_COUNTED = (
    "connections_opened",
    "connections_refused",
    "connections_too_slow",
    "requests",
    "texts",
    "frames",
    "rows",
    "events",
    "events_shed_inside",
    "events_shed_dwell",
)
