"""Location-based publish/subscribe: what moves, who wants to know of it, and what happened.

A publication and a subscription match while they are about the same topic, the publication's
values pass the subscription's filter, and the one is within the scope of the other. Both move.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple

from mercury.model.area import Polygon
from mercury.model.errors import MatchingError
from mercury.model.filter import Value, compile_filter
from mercury.model.topics import valid_name

MAX_RADIUS_M = 200_000.0
MAX_CORNERS = 512  # of a polygon, holes included
MAX_ID_BYTES = 200
MAX_TTL_S = 7 * 86_400.0

Side = Literal["publication", "subscription"]


class EventType(IntEnum):
    """What happened to a pair."""

    ENTER = 1  # the publication came into the scope
    INSIDE = 2  # one of them moved, and it is still inside
    EXIT = 3
    DWELL = 4  # it has been inside for as long as the subscription asked


class EventReason(IntEnum):
    """Why it happened."""

    MOVED = 1
    CHANGED = 2  # values, filter or scope are others than before
    WITHDRAWN = 3  # one of them was withdrawn
    EXPIRED = 4  # one of them was not updated within its time to live
    TIME = 5


@dataclass(frozen=True, slots=True)
class Publication:
    """A moving entity with values that describe it."""

    id: str
    topic: str
    values: Mapping[str, Value] = field(default_factory=dict)
    radius_m: float = 0.0  # a scope of its own, where scopes that overlap match
    ttl_s: float | None = None  # after its last position; none: a default

    def __post_init__(self) -> None:
        _check_common(self.id, self.topic, self.ttl_s)
        if not 0.0 <= self.radius_m <= MAX_RADIUS_M:
            raise MatchingError(
                f"radius_m {self.radius_m:g} is not between 0 and {MAX_RADIUS_M:g}", "radius"
            )


@dataclass(frozen=True, slots=True)
class NearSubscription:
    """A subscription to the publications near a moving position, or inside a polygon.

    A circle moves with the subscription's position; a polygon stays where it is.
    """

    id: str
    topic: str
    radius_m: float | None = None
    polygon: Polygon | None = None
    where: str = ""
    inside: bool = False  # notified at every update of either side, not of changes alone
    dwell_s: float | None = None
    hysteresis_m: float | None = None  # how far outside is out; none: a default
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        _check_common(self.id, self.topic, self.ttl_s)
        if (self.radius_m is None) == (self.polygon is None):
            raise MatchingError("a scope is either a radius or a polygon: give one", "scope")
        if self.radius_m is not None and not 0.0 < self.radius_m <= MAX_RADIUS_M:
            raise MatchingError(
                f"radius_m {self.radius_m:g} is not more than 0 and at most {MAX_RADIUS_M:g}",
                "radius",
            )
        if self.polygon is not None:
            corners = len(self.polygon.exterior) + sum(map(len, self.polygon.holes))
            if corners > MAX_CORNERS:
                raise MatchingError(
                    f"the polygon has {corners} corners, at most {MAX_CORNERS} are allowed", "scope"
                )
        for name, value in (("dwell_s", self.dwell_s), ("hysteresis_m", self.hysteresis_m)):
            if value is not None and not (0.0 <= value <= MAX_RADIUS_M):
                raise MatchingError(f"{name} {value:g} is not between 0 and {MAX_RADIUS_M:g}", name)
        compile_filter(self.where)


class Match(NamedTuple):
    """An event of a pair, as its subscriber is notified of it."""

    event_type: EventType
    reason: EventReason
    subscription: str
    publication: str
    topic: str
    values: Mapping[str, Value]
    lat: float  # where the publication is
    lon: float
    distance_m: float
    time_us: int  # of the update that caused it


def entity_key(side: Side, entity_id: str) -> int:
    """A number of 64 bits for an entity, the same in every process."""
    digest = hashlib.blake2b(entity_id.encode(), digest_size=8, person=side[:3].encode())
    return int.from_bytes(digest.digest(), "little")


def _check_common(entity_id: str, topic: str, ttl_s: float | None) -> None:
    if not 0 < len(entity_id.encode("utf-8", "replace")) <= MAX_ID_BYTES:
        raise MatchingError(f"an id has 1 to {MAX_ID_BYTES} bytes", "id")
    if not valid_name(topic):
        raise MatchingError(f"{topic!r} is no name for a topic", "topic")
    if ttl_s is not None and not (0.0 < ttl_s <= MAX_TTL_S and math.isfinite(ttl_s)):
        raise MatchingError(f"ttl_s {ttl_s:g} is not more than 0 and at most {MAX_TTL_S:g}", "ttl")
