"""Who met whom: tracks go through an engine, and its events become encounters.

An encounter begins when two come within the radius of one another, and ends when they are farther
apart than radius and hysteresis. Between two reports a client is where it reported last.

What is known of one place and hour need not hold the begin of an encounter: it cannot say whether
two between radius and reach (radius and hysteresis) are in one. Hence the engine is asked of both
circles, which gives contacts: a span within reach, and since when the radius was met in it.
Contacts of one pair that touch are one, wherever they were found, and those that met the radius
are the encounters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mercury.matching.engine import Engine, MatchingRules
from mercury.matching.events import EventColumns, Events
from mercury.matching.layout import SLOT_MASK
from mercury.model.errors import MatchingError
from mercury.model.matching import MAX_RADIUS_M, MAX_TTL_S, EventType, NearSubscription, Publication

NEVER_US = np.iinfo(np.int64).max

_TOPIC = "met"
_CHUNK_ROWS = 10_000  # reports whose events are held at a time

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EncounterRule:
    """What counts as an encounter."""

    radius_m: float = 50.0
    hysteresis_m: float = 10.0  # an encounter ends this far outside the radius
    min_duration_s: float = 0.0
    gap_s: float = 60.0  # timeout: a client without a report is absent until the next one

    def __post_init__(self) -> None:
        if not 0.0 < self.radius_m <= MAX_RADIUS_M:
            raise MatchingError(
                f"a radius of {self.radius_m:g} m is not more than 0 and at most {MAX_RADIUS_M:g}",
                "radius",
            )
        if not (self.hysteresis_m >= 0.0 and self.reach_m <= MAX_RADIUS_M):
            raise MatchingError(
                f"a hysteresis of {self.hysteresis_m:g} m is below 0, or with the radius more than"
                f" {MAX_RADIUS_M:g}",
                "hysteresis_m",
            )
        if not 0.0 <= self.min_duration_s < math.inf:
            raise MatchingError(f"no encounter lasts {self.min_duration_s:g} s", "min_duration_s")
        if not 0.0 < self.gap_s <= MAX_TTL_S:
            raise MatchingError(
                f"a gap of {self.gap_s:g} s is not more than 0 and at most {MAX_TTL_S:g}", "ttl"
            )

    @property
    def reach_m(self) -> float:
        return self.radius_m + self.hysteresis_m


class Segments(NamedTuple):
    """Where each client was, and for how long: one row for each report."""

    who: Ints  # a number for each client
    from_us: Ints
    until_us: Ints  # later: the next report, or when it was not heard of for too long
    lat: Floats
    lon: Floats
    seen: Flags  # it can be met
    sees: Flags  # and meets others


@dataclass(frozen=True, slots=True, eq=False)
class Contacts(EventColumns):
    """One row for each span in which a pair was within reach."""

    pair: Ints
    from_us: Ints
    until_us: Ints
    near_us: Ints  # when the radius was met first, or NEVER_US
    nearest_m: Floats
    nearest_us: Ints
    lat: Floats  # of the one who was met, when it was nearest
    lon: Floats

    @classmethod
    def none(cls) -> Self:
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(whole, whole, whole, whole, real, whole, real, real)


def merged(contacts: Contacts) -> Contacts:
    """Contacts of one pair that overlap or touch, merged; by pair and time."""
    if not len(contacts):
        return contacts
    found = contacts.take(np.lexsort((contacts.from_us, contacts.pair)))
    # Pair and time as one number, by their ranks, so that one running maximum serves all pairs.
    count = len(found)
    _, pairs = np.unique(found.pair, return_inverse=True)
    _, times = np.unique(np.concatenate([found.from_us, found.until_us]), return_inverse=True)
    row = pairs * (2 * count + 1)
    ends = np.maximum.accumulate(row + times[count:])
    begins = np.concatenate([[True], (row + times[:count])[1:] > ends[:-1]])
    at = np.flatnonzero(begins)
    nearest = np.lexsort((found.nearest_us, found.nearest_m, np.cumsum(begins)))[at]
    return Contacts(
        found.pair[at],
        found.from_us[at],
        np.maximum.reduceat(found.until_us, at),
        np.minimum.reduceat(found.near_us, at),
        found.nearest_m[nearest],
        found.nearest_us[nearest],
        found.lat[nearest],
        found.lon[nearest],
    )


def encounters(contacts: Contacts, rule: EncounterRule) -> Contacts:
    """The contacts, merged, that are encounters; they begin when the radius was met."""
    met = contacts.take(contacts.near_us != NEVER_US)
    met = met.take(met.until_us - met.near_us >= round(rule.min_duration_s * 1e6))
    return replace(met, from_us=met.near_us)


def contacts(
    segments: Segments,
    rule: EncounterRule,
    clients: int,
    *,
    mutual: bool = True,
    chunk_rows: int = _CHUNK_ROWS,
) -> Contacts:
    """The contacts of these tracks, merged; a pair is `sees * clients + seen`.

    With `mutual`, each pair is reported once, the lower number first.
    """
    found = []
    finder = _ContactFinder(segments, rule, clients, mutual)
    for until_us, events in finder.run(chunk_rows):
        found.append(merged(finder.read(events, until_us)))
    return merged(Contacts.joined([Contacts.none(), *found]))


class _ContactFinder:
    """All clients of some tracks in an engine: publications, each with two circles if it sees."""

    def __init__(self, segments: Segments, rule: EncounterRule, clients: int, mutual: bool) -> None:
        self._segments = segments
        self._clients = clients
        self._mutual = mutual
        self._open = np.zeros(0, np.int64)  # pairs that are within reach
        self._open_us = 0  # since when, as far as it was not read yet
        # Absent clients are moved away; nothing has to expire here.
        self._engine = Engine(MatchingRules(ttl_s=MAX_TTL_S, max_radius_m=rule.reach_m))
        # References, by client; −1 for who has none.
        self._seen, self._wide, self._near = np.full((3, clients), -1)
        self._enter(rule)
        every = np.concatenate([self._seen, self._wide, self._near])
        count = int((every[every >= 0] & SLOT_MASK).max(initial=-1)) + 1
        # The client, and whether it is the wide circle, by slot.
        self._who, self._is_wide = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        for refs in (self._seen, self._wide, self._near):
            known = np.flatnonzero(refs >= 0)
            self._who[refs[known] & SLOT_MASK] = known
            self._is_wide[refs[known] & SLOT_MASK] = refs is self._wide

    def _enter(self, rule: EncounterRule) -> None:
        segments = self._segments
        begin_us = int(segments.from_us.min(initial=NEVER_US))
        circles = ("wide", self._wide, rule.reach_m), ("near", self._near, rule.radius_m)
        for who in np.unique(segments.who[segments.seen]).tolist():
            self._seen[who] = self._engine.publish(Publication(f"{who}", _TOPIC), begin_us)
        for who in np.unique(segments.who[segments.sees]).tolist():
            for name, circle, radius_m in circles:
                subscription = NearSubscription(f"{name}-{who}", _TOPIC, radius_m, hysteresis_m=0.0)
                circle[who] = self._engine.subscribe(subscription, begin_us)

    def run(self, chunk_rows: int) -> Iterator[tuple[int, Events]]:
        """Move everyone; the events until each of some instants."""
        segments = self._segments
        if not (segments.seen.any() and segments.sees.any()):
            return
        coming, going = np.argsort(segments.from_us), np.argsort(segments.until_us)
        from_us, until_us = segments.from_us[coming], segments.until_us[going]
        # An instant is not divided.
        edges = np.unique(from_us[::chunk_rows])
        come = [*np.searchsorted(from_us, edges).tolist(), len(coming)]
        go = [0, *np.searchsorted(until_us, edges[1:]).tolist(), len(going)]
        for some, others in zip(pairwise(come), pairwise(go), strict=True):
            refs, lats, lons, times_us = self._moves(coming[slice(*some)], going[slice(*others)])
            self._engine.move(refs, lats, lons, times_us, np.zeros(len(refs)))
            yield int(times_us[-1]), self._engine.take()

    def _moves(
        self, coming: NDArray[np.intp], going: NDArray[np.intp]
    ) -> tuple[Ints, Floats, Floats, Ints]:
        """The updates of clients that come and go, in order.

        Updates of one instant are simultaneous: all that move are first moved far away, and then to
        their new positions. So none is near a position that another has just left.
        """
        segments = self._segments
        lat, lon = float(segments.lat[0]), float(segments.lon[0])
        # Far from here, and from each other: the antipode, and a quarter of the Earth aside.
        nowhere = (-lat, _turned(lon + 180.0)), (0.0, _turned(lon + 90.0))
        parts = []
        for entities, here, away in (
            (self._seen, segments.seen, nowhere[0]),
            (self._wide, segments.sees, nowhere[1]),
            (self._near, segments.sees, nowhere[1]),
        ):
            left, came = going[here[going]], coming[here[coming]]
            gone, put = np.zeros(len(left)), np.ones(len(came))
            refs = entities[segments.who[left]]
            parts.append((refs, gone + away[0], gone + away[1], segments.until_us[left], gone))
            at = segments.lat[came], segments.lon[came], segments.from_us[came]
            parts.append((entities[segments.who[came]], *at, put))
        refs, lats, lons, times_us, turn = (np.concatenate(one) for one in zip(*parts, strict=True))
        order = np.lexsort((turn, times_us))
        return refs[order], lats[order], lons[order], times_us[order]

    def read(self, events: Events, until_us: int) -> Contacts:
        """Events since the last time, as contacts that end at this instant at the latest."""
        whom = self._who[events.publication & SLOT_MASK]
        circle = events.subscription & SLOT_MASK
        who, wide = self._who[circle], self._is_wide[circle]
        enters = events.event_type == EventType.ENTER
        kept = who < whom if self._mutual else who != whom
        pair = who * self._clients + whom
        some = kept & wide
        reach = self._within_reach(pair[some], events.time_us[some], enters[some], until_us)
        met = kept & ~wide & enters
        lat, lon, at_us = events.lat[met], events.lon[met], events.time_us[met]
        distance_m = np.round(events.distance_m[met].astype(np.float64), 3)
        # Each is a moment of the contact around it.
        near = Contacts(pair[met], at_us, at_us, at_us, distance_m, at_us, lat, lon)
        return Contacts.joined([reach, near])

    def _within_reach(self, pair: Ints, event_us: Ints, enters: Flags, until_us: int) -> Contacts:
        pairs = np.concatenate([self._open, pair])
        times_us = np.concatenate([np.full(len(self._open), self._open_us), event_us])
        signs = np.concatenate([np.ones(len(self._open)), np.where(enters, 1.0, -1.0)])
        known, rows = np.unique(pairs, return_inverse=True)
        still = known[np.bincount(rows, signs, len(known)) > 0.0]
        # As if all ended now: then a pair's rows are begins and ends by turns.
        pairs = np.concatenate([pairs, still])
        times_us = np.concatenate([times_us, np.full(len(still), until_us)])
        order = np.argsort(pairs, kind="stable")
        from_us, ends_us = times_us[order][0::2], times_us[order][1::2]
        self._open, self._open_us = still, until_us
        never, far = np.full(len(from_us), NEVER_US), np.full(len(from_us), np.inf)
        nowhere = np.full(len(from_us), np.nan)
        return Contacts(pairs[order][0::2], from_us, ends_us, never, far, never, nowhere, nowhere)


def _turned(lon: float) -> float:
    return (lon + 180.0) % 360.0 - 180.0
