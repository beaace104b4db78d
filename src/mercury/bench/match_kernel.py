"""The matching engine alone: updates a second on one core, and what they cost as it grows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.geo.distance import DEGREE_M
from mercury.matching import Engine
from mercury.model.matching import NearSubscription, Publication

BATCH = 1024
TOPICS = 32
RADIUS_M = (50.0, 500.0)
SIDE_M = 40_000.0
SPEED_MPS = (1.0, 20.0)
_SOUTH, _WEST = 47.9, 11.2
_HIGHEST_PRICE = 100
_HOT_SHARE, _HOT_M = 0.2, 1_000.0
_TICK_UPDATES = 8_192  # about a tenth of a second at 80,000 updates a second
_WARM_UP_ROUNDS = 8  # until cells and skins fit
_FEWEST_ROUNDS = 4  # who set out together looks around together for a while


@dataclass(frozen=True, slots=True)
class Population:
    """Entities and their density: evenly over a square, or a share crowded into a tile."""

    entities: int  # half of them publish, half subscribe
    side_m: float
    radius_m: tuple[float, float] = RADIUS_M
    hot: bool = False

    @classmethod
    def of(cls, entities: int) -> Population:
        """As dense as 200,000 entities are on 40 × 40 km."""
        return cls(entities // 2 * 2, SIDE_M * math.sqrt(entities / 200_000))

    def crowded(self) -> Population:
        """A fifth of them in one square kilometre, with scopes that give as many matches."""
        evenly = 1.0 / self.side_m**2
        crowd = _HOT_SHARE**2 / _HOT_M**2 + (1.0 - _HOT_SHARE) ** 2 * evenly
        scale = math.sqrt(evenly / crowd)
        radius_m = (self.radius_m[0] * scale, self.radius_m[1] * scale)
        return replace(self, radius_m=radius_m, hot=True)


class _World:
    """Entities that move, and an engine."""

    def __init__(self, population: Population) -> None:
        self._dice = np.random.default_rng(1)
        self.engine = Engine()
        count = population.entities
        self._low = np.zeros(count)
        self._high = np.full(count, population.side_m)
        if population.hot:
            hot = self._dice.random(count) < _HOT_SHARE
            self._low[hot] = (population.side_m - _HOT_M) / 2
            self._high[hot] = (population.side_m + _HOT_M) / 2
        self._x = self._dice.uniform(self._low, self._high)
        self._y = self._dice.uniform(self._low, self._high)
        self._speed = self._dice.uniform(*SPEED_MPS, count)
        self._heading = self._dice.uniform(0.0, 2.0 * math.pi, count)
        self._lat_scale = 1.0 / DEGREE_M
        self._lon_scale = self._lat_scale / math.cos(math.radians(_SOUTH + 0.2))
        self.refs = self._declare(population)
        self.second = 0

    def _declare(self, population: Population) -> NDArray[np.int64]:
        dice, engine, half = self._dice, self.engine, population.entities // 2
        refs = np.empty(population.entities, np.int64)
        prices = dice.integers(0, _HIGHEST_PRICE, half).tolist()
        for number, price in enumerate(prices):
            entity = Publication(f"p{number}", f"t{number % TOPICS}", {"price": price}, ttl_s=1e5)
            refs[number] = engine.publish(entity, 0)
        limits = (10 * dice.integers(1, 11, half)).tolist()
        radii = dice.uniform(*population.radius_m, half).tolist()
        for number, (limit, radius_m) in enumerate(zip(limits, radii, strict=True)):
            subscription = NearSubscription(
                f"s{number}",
                f"t{number % TOPICS}",
                radius_m=radius_m,
                where=f"price < {limit}",
                inside=True,
                ttl_s=1e5,
            )
            refs[half + number] = engine.subscribe(subscription, 0)
        return refs

    def round(self) -> tuple[float, int, int]:
        """A second of everybody's movement; CPU seconds, updates and events."""
        x = self._x + self._speed * np.cos(self._heading)
        y = self._y + self._speed * np.sin(self._heading)
        self._x, self._y = np.clip(x, self._low, self._high), np.clip(y, self._low, self._high)
        outside = (self._x != x) | (self._y != y)
        self._heading += self._dice.normal(0.0, 0.1, len(x)) + math.pi * outside
        order = self._dice.permutation(len(self._x))
        refs = self.refs[order]
        lats = _SOUTH + self._y[order] * self._lat_scale
        lons = _WEST + self._x[order] * self._lon_scale
        self.second += 1
        times_us = np.full(len(order), self.second * 1_000_000)
        accuracy = np.zeros(len(order))
        engine, events = self.engine, 0
        begun = time.process_time()
        for first in range(0, len(order), BATCH):
            rows = slice(first, first + BATCH)
            engine.move(refs[rows], lats[rows], lons[rows], times_us[rows], accuracy[rows])
            events += len(engine.take())
            if first % _TICK_UPDATES == 0:
                engine.tick(self.second * 1_000_000)
        return time.process_time() - begun, len(order), events


def measure(population: Population, *, updates: int = 2_000_000) -> dict[str, Any]:
    """Updates a second of one core, in batches, with all events and ticks."""
    world = _World(population)
    count = len(world.refs)
    for _ in range(_WARM_UP_ROUNDS):
        world.round()
    spent_s, done, events = 0.0, 0, 0
    while done < max(updates, _FEWEST_ROUNDS * count):
        round_s, moved, notified = world.round()
        spent_s, done, events = spent_s + round_s, done + moved, events + notified
    return {
        "entities": count,
        "updates_per_s": round(done / spent_s),
        "ns_per_update": round(spent_s / done * 1e9),
        "matches_per_update": round(events / done, 3),
    }
