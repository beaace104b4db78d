"""The engine's brute-force twin: every pair is looked at, one after the other, in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from mercury.geo import haversine_m
from mercury.geo.polygon import PreparedPolygon
from mercury.matching import MatchingRules
from mercury.model.filter import compile_filter
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication

EARTH_M = 6_371_008.7714
CLOSE_M = 0.0005


class Notified(NamedTuple):
    event_type: EventType
    reason: EventReason
    subscription: str
    publication: str
    time_us: int
    distance_m: float


@dataclass
class Entity:
    what: Publication | NearSubscription
    place: tuple[float, float] | None = None
    accuracy_m: float = 0.0
    time_us: int = -(1 << 62)
    expires_us: int = 1 << 62


@dataclass
class Pair:
    since_us: int
    dwelled: bool = False


class Twin:
    """What an engine does, said as simply as possible."""

    def __init__(self, rules: MatchingRules | None = None) -> None:
        self.rules = rules or MatchingRules()
        self.publications: dict[str, Entity] = {}
        self.subscriptions: dict[str, Entity] = {}
        self.pairs: dict[tuple[str, str], Pair] = {}
        self.notified: list[Notified] = []
        self.dropped: Counter[str] = Counter()
        self.close_calls = 0  # on a border, where rounding decides

    def publish(self, publication: Publication, time_us: int) -> None:
        self._put(self.publications, publication, time_us)

    def subscribe(self, subscription: NearSubscription, time_us: int) -> None:
        self._put(self.subscriptions, subscription, time_us)

    def move(
        self, side: str, name: str, lat: float, lon: float, time_us: int, accuracy_m: float = 0.0
    ) -> None:
        entity = self._side(side).get(name)
        if entity is None:
            self.dropped["unknown"] += 1
        elif not (abs(lat) <= 90.0 and abs(lon) <= 180.0):
            self.dropped["no-position"] += 1
        elif time_us < entity.time_us:
            self.dropped["late"] += 1
        else:
            entity.time_us = time_us
            entity.expires_us = time_us + self._ttl_us(entity.what)
            if isinstance(entity.what, Publication) or entity.what.polygon is None:
                entity.place = (lat, lon)
                entity.accuracy_m = accuracy_m if 0.0 < accuracy_m < math.inf else 0.0
                self._judge(side, name, time_us, EventReason.MOVED)  # a polygon is only kept alive

    def withdraw(
        self, side: str, name: str, time_us: int, reason: EventReason = EventReason.WITHDRAWN
    ) -> None:
        if self._side(side).get(name) is None:
            return
        for pair in [pair for pair in self.pairs if pair[side == "publication"] == name]:
            self._exit(pair, time_us, reason)
        del self._side(side)[name]

    def tick(self, time_us: int) -> None:
        for (subscription, publication), pair in list(self.pairs.items()):
            sub, pub = self.subscriptions[subscription], self.publications[publication]
            assert isinstance(sub.what, NearSubscription)
            if sub.what.dwell_s is None or pair.dwelled:
                continue
            due_us = pair.since_us + round(sub.what.dwell_s * 1e6)
            if due_us <= time_us and due_us <= min(sub.expires_us, pub.expires_us):
                pair.dwelled = True
                self._tell(EventType.DWELL, EventReason.TIME, (subscription, publication), due_us)
        late = [
            (entity.expires_us, side, name)
            for side in ("publication", "subscription")
            for name, entity in self._side(side).items()
            if entity.expires_us <= time_us
        ]
        for expires_us, side, name in sorted(late):
            self.withdraw(side, name, expires_us, EventReason.EXPIRED)

    # Inside

    def _side(self, side: str) -> dict[str, Entity]:
        return self.publications if side == "publication" else self.subscriptions

    def _ttl_us(self, what: Publication | NearSubscription) -> int:
        return round((self.rules.ttl_s if what.ttl_s is None else what.ttl_s) * 1e6)

    def _put(
        self, entities: dict[str, Entity], what: Publication | NearSubscription, time_us: int
    ) -> None:
        side = "publication" if entities is self.publications else "subscription"
        known = entities.get(what.id)
        if known is not None and (
            known.what.topic != what.topic
            or (isinstance(what, NearSubscription) and _kind(what) != _kind(known.what))
        ):
            place, time, accuracy_m = known.place, known.time_us, known.accuracy_m
            self.withdraw(side, what.id, time_us, EventReason.CHANGED)
            known = Entity(what, place, accuracy_m, time)
            if not isinstance(what, Publication) and what.polygon is not None:
                known.place = None
        known = known or Entity(what)
        entities[what.id] = known
        known.what = what
        known.time_us = max(known.time_us, time_us)
        known.expires_us = known.time_us + self._ttl_us(what)
        self._judge(side, what.id, time_us, EventReason.CHANGED)

    def _judge(self, side: str, name: str, time_us: int, reason: EventReason) -> None:
        if side == "publication":
            couples = [(subscription, name) for subscription in self.subscriptions]
        else:
            couples = [(name, publication) for publication in self.publications]
        for couple in couples:
            pair = self.pairs.get(couple)
            reaches, stays = self._within(couple)
            if pair is None and reaches:
                self.pairs[couple] = Pair(time_us)
                self._tell(EventType.ENTER, reason, couple, time_us)
            elif pair is not None and not stays:
                self._exit(couple, time_us, reason)
            elif pair is not None and reason is EventReason.MOVED:
                subscription = self.subscriptions[couple[0]].what
                assert isinstance(subscription, NearSubscription)
                if subscription.inside:
                    self._tell(EventType.INSIDE, reason, couple, time_us)

    def _within(self, couple: tuple[str, str]) -> tuple[bool, bool]:
        """Whether a pair matches, and whether it goes on matching if it did."""
        sub, pub = self.subscriptions[couple[0]], self.publications[couple[1]]
        subscription, publication = sub.what, pub.what
        assert isinstance(subscription, NearSubscription)
        assert isinstance(publication, Publication)
        if subscription.topic != publication.topic:
            return False, False
        if not compile_filter(subscription.where).matches(publication.values):
            return False, False
        distance_m = self._distance_m(couple)
        if math.isinf(distance_m):
            return False, False
        own_m = publication.radius_m if self.rules.overlap else 0.0
        if subscription.polygon is None:
            assert subscription.radius_m is not None
            reach_m = size_m = subscription.radius_m + own_m
        else:
            reach_m, size_m = own_m, self._size_m(subscription) + own_m
        hysteresis_m = (
            self.rules.hysteresis_m
            if subscription.hysteresis_m is None
            else subscription.hysteresis_m
        )
        doubt_m = math.hypot(
            pub.accuracy_m, sub.accuracy_m if subscription.polygon is None else 0.0
        )
        slack_m = max(hysteresis_m, min(doubt_m, size_m))
        if min(abs(distance_m - reach_m), abs(distance_m - reach_m - slack_m)) < CLOSE_M:
            # Inside a polygon is as good as 0, on either side of its border is counted there.
            self.close_calls += subscription.polygon is None or distance_m > 0.0
        return distance_m <= reach_m, distance_m <= reach_m + slack_m

    def _distance_m(self, couple: tuple[str, str]) -> float:
        """From the centre of a circle, or from the border of a polygon to those outside."""
        sub, pub = self.subscriptions[couple[0]], self.publications[couple[1]]
        assert isinstance(sub.what, NearSubscription)
        if pub.place is None:
            return math.inf
        if sub.what.polygon is None:
            return math.inf if sub.place is None else float(haversine_m(*sub.place, *pub.place))
        rings = (sub.what.polygon.exterior, *sub.what.polygon.holes)
        border_m = min(
            _to_edge_m(pub.place, (ring[i - 1].lat, ring[i - 1].lon), (ring[i].lat, ring[i].lon))
            for ring in rings
            for i in range(len(ring))
        )
        self.close_calls += border_m < CLOSE_M
        return 0.0 if PreparedPolygon(sub.what.polygon).contains_point(*pub.place) else border_m

    @staticmethod
    def _size_m(subscription: NearSubscription) -> float:
        """The radius of a circle around a polygon: about the middle of the box of its corners."""
        assert subscription.polygon is not None
        first = subscription.polygon.exterior[0]
        lons = [first.lon + _turned(p.lon - first.lon) for p in subscription.polygon.exterior]
        lats = [p.lat for p in subscription.polygon.exterior]
        lat, lon = (min(lats) + max(lats)) / 2, (min(lons) + max(lons)) / 2
        return max(
            float(haversine_m(lat, lon, corner_lat, corner_lon))
            for corner_lat in (min(lats), max(lats))
            for corner_lon in (min(lons), max(lons))
        )

    def _exit(self, couple: tuple[str, str], time_us: int, reason: EventReason) -> None:
        self._tell(EventType.EXIT, reason, couple, time_us)
        del self.pairs[couple]

    def _tell(
        self, event_type: EventType, reason: EventReason, couple: tuple[str, str], time_us: int
    ) -> None:
        distance_m = self._distance_m(couple)
        self.notified.append(Notified(event_type, reason, *couple, time_us, distance_m))


def _kind(what: Publication | NearSubscription) -> bool:
    return isinstance(what, NearSubscription) and what.polygon is None


def _turned(degrees: float) -> float:
    return (degrees + 180.0) % 360.0 - 180.0


def _to_edge_m(
    place: tuple[float, float], start: tuple[float, float], end: tuple[float, float]
) -> float:
    """To an edge that is straight in longitude and latitude, in the plane around the place."""
    scale = math.radians(1.0) * EARTH_M
    squeeze = math.cos(math.radians(place[0]))
    ax, ay = _turned(start[1] - place[1]) * squeeze * scale, (start[0] - place[0]) * scale
    bx = ax + _turned(end[1] - start[1]) * squeeze * scale
    by = (end[0] - place[0]) * scale
    length = (bx - ax) ** 2 + (by - ay) ** 2
    along = 0.0 if length == 0.0 else -(ax * (bx - ax) + ay * (by - ay)) / length
    along = min(max(along, 0.0), 1.0)
    return math.hypot(ax + along * (bx - ax), ay + along * (by - ay))
