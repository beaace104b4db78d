"""What the load is: who publishes, who subscribes to what, and how they move.

Everything follows from the seed. Entities are numbered in the order in which they report, so that
the updates of a moment are neighbours in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.model.errors import LoadError
from mercury.model.matching import MAX_RADIUS_M, MAX_TTL_S, NearSubscription, Publication, Side
from mercury.roads.movement import Movement
from mercury.roads.network import RoadNetwork
from mercury.roads.trips import TripSettings, plan

HIGHEST_PRICE = 100
_FILTERS = 10  # different ones, as a form with a slider would make them
_TTL_INTERVALS = 5.0  # an entity expires after so many missing updates
_SHORTEST_TTL_S = 60.0
_DECLARED_PER_S = 2_000.0  # at least; the first must not expire before the last is declared


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """What a workload is made from."""

    entities: int = 100_000
    publications: float = 0.5  # share; the others subscribe
    rate_hz: float = 1.0  # updates of each entity
    radius_m: tuple[float, float] = (50.0, 500.0)  # of subscriptions, evenly between
    topics: int = 32
    selectivity: float = 0.55  # share of publications that pass a filter, on average; 1: no filter
    inside: bool = False  # notified at every update, not of enters and exits alone
    noise_m: float = 5.0
    trips: TripSettings = field(default_factory=TripSettings)
    name: str = "load"  # ids begin with it
    seed: int = 1

    def __post_init__(self) -> None:
        low_m, high_m = self.radius_m
        if not 0.0 <= self.publications <= 1.0:
            raise LoadError(f"a share of publications of {self.publications:g} is not in 0..1")
        if not 0.0 < low_m <= high_m <= MAX_RADIUS_M:
            raise LoadError(
                f"radii from {low_m:g} to {high_m:g} m are not from above 0 to {MAX_RADIUS_M:g}"
            )
        if not 0.0 < self.rate_hz <= 1000.0:
            raise LoadError(f"a rate of {self.rate_hz:g} Hz is not more than 0 and at most 1000")
        if self.topics < 1:
            raise LoadError("there must be a topic")
        if not 0.0 < self.selectivity <= 1.0:
            raise LoadError(f"--where {self.selectivity:g} is not a share above 0 and at most 1")
        if self.seed < 0:
            raise LoadError("a seed is not negative")


class DueUpdates(NamedTuple):
    """Updates that have become due, in order."""

    entities: NDArray[np.int64]
    times_s: FloatArray  # exactly when, counted from the begin

    def __len__(self) -> int:
        return len(self.entities)


class Schedule:
    """When each entity is due: open loop, so the system under test never delays an update.

    Entity i is due at `phases_s[i] + k / rate`, for each k from 0; phases are sorted and
    shorter than an interval. A core: it takes the time and returns what has become due.
    """

    def __init__(self, phases_s: FloatArray, rate_hz: float) -> None:
        self._interval_s = 1.0 / rate_hz
        self._phases_s = phases_s
        self.offered = 0  # updates handed out so far

    def due_by(self, until_s: float) -> int:
        """How many updates are due before a time, from the begin."""
        if until_s <= 0.0:
            return 0
        rounds = math.floor(until_s / self._interval_s)
        within_s = until_s - rounds * self._interval_s
        count = rounds * len(self._phases_s) + int(np.searchsorted(self._phases_s, within_s))
        # That difference is rounded: what counts is the time that `take` hands out.
        while count and self._times_s(np.array(count - 1)) >= until_s:
            count -= 1
        return count

    def _times_s(self, numbers: NDArray[np.int64]) -> FloatArray:
        rounds, entities = np.divmod(numbers, len(self._phases_s))
        return np.asarray(rounds * self._interval_s + self._phases_s[entities])

    def take(self, until_s: float, limit: int) -> DueUpdates:
        """The updates due before a time that were not returned yet, up to the limit."""
        count = min(self.due_by(until_s) - self.offered, limit)
        numbers = np.arange(self.offered, self.offered + max(count, 0))
        self.offered += len(numbers)
        return DueUpdates(numbers % len(self._phases_s), self._times_s(numbers))


class Workload:
    """The entities, in columns, and their movement."""

    def __init__(self, roads: RoadNetwork, settings: WorkloadSettings) -> None:
        self.settings = settings
        count = settings.entities
        # A random stream for each purpose: with another rate, trips stay the same.
        trips_dice, what_dice, when_dice = np.random.default_rng(settings.seed).spawn(3)
        trips = plan(roads, count, trips_dice, settings.trips)
        self.movement = Movement(roads, trips, noise_m=settings.noise_m, seed=settings.seed)
        self.publishes: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.publishes[: round(count * settings.publications)] = True
        what_dice.shuffle(self.publishes)
        self.topic: NDArray[np.int64] = what_dice.integers(0, settings.topics, count)
        self.price: NDArray[np.int64] = what_dice.integers(0, HIGHEST_PRICE + 1, count)
        self.highest_price: NDArray[np.int64] = what_dice.choice(
            price_limits(settings.selectivity), count
        )
        self.radius_m: FloatArray = what_dice.uniform(*settings.radius_m, count)
        self._parts = np.sort(when_dice.random(count))  # of an interval
        self.phases_s: FloatArray = self._parts / settings.rate_hz

    def __len__(self) -> int:
        return len(self.publishes)

    def at_rate(self, rate_hz: float) -> Workload:
        """The same entities on the same trips, with another update rate."""
        other = copy(self)
        other.settings = replace(self.settings, rate_hz=rate_hz)
        other.phases_s = self._parts / rate_hz
        return other

    def schedule(self) -> Schedule:
        """When they report, from the begin."""
        return Schedule(self.phases_s, self.settings.rate_hz)

    @property
    def accuracy_m(self) -> float:
        """The accuracy that entities report."""
        return self.settings.noise_m

    @property
    def has_filters(self) -> bool:
        """Whether subscriptions have filters."""
        return self.settings.selectivity < 1.0

    @property
    def ttl_s(self) -> float:
        """The time to live of an entity without updates."""
        intervals_s = _TTL_INTERVALS / self.settings.rate_hz
        until_all_are_declared_s = len(self) / _DECLARED_PER_S
        return min(max(_SHORTEST_TTL_S, intervals_s, until_all_are_declared_s), MAX_TTL_S)

    def id_of(self, entity: int) -> str:
        return f"{self.settings.name}-{entity}"

    def side_of(self, entity: int) -> Side:
        return "publication" if self.publishes[entity] else "subscription"

    def declaration(self, entity: int) -> Publication | NearSubscription:
        """An entity's declaration."""
        name, topic = self.id_of(entity), f"topic-{self.topic[entity]}"
        if self.publishes[entity]:
            values = {"price": int(self.price[entity])}
            return Publication(name, topic, values, ttl_s=self.ttl_s)
        return NearSubscription(
            name,
            topic,
            radius_m=round(float(self.radius_m[entity]), 1),
            where=f"price <= {self.highest_price[entity]}" if self.has_filters else "",
            inside=self.settings.inside,
            ttl_s=self.ttl_s,
        )

    def declarations(self) -> Iterator[Publication | NearSubscription]:
        """All of them, in order."""
        return (self.declaration(entity) for entity in range(len(self)))

    def to_json(self) -> dict[str, Any]:
        """What it was made from, for programs."""
        document = asdict(self.settings)
        trips = document.pop("trips")
        del document["name"]
        return {**document, "places": trips["places"], "range_m": trips["range_m"]}


def price_limits(selectivity: float) -> NDArray[np.int64]:
    """Equally likely price limits that let a given share of all prices pass on average.

    They are spread as widely as that share allows: for 0.55 from 10 to 100.
    """
    spread = min(selectivity, 1.0 - selectivity)
    shares = np.linspace(selectivity - spread, selectivity + spread, _FILTERS)
    return np.rint(shares * HIGHEST_PRICE).astype(np.int64)
